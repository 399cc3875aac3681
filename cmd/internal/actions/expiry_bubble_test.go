package actions

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/bearer"
)

func TestAConfirmationIsGoodForTwoMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c confirmations
		d := &Database{}
		add := func() string {
			id, err := c.add(confirmation{database: d, who: "ann"})
			require.NoError(t, err)
			return id
		}
		late, early := add(), add()
		time.Sleep(confirmWithin)
		_, err := c.use(d, early, "ann")
		require.NoError(t, err)
		_, err = c.use(d, early, "ann")
		require.ErrorIs(t, err, errConfirm, "once")
		time.Sleep(time.Nanosecond)
		_, err = c.use(d, late, "ann")
		require.ErrorIs(t, err, errConfirm, "too old")
		_, err = c.use(&Database{Name: "staging"}, add(), "ann")
		require.ErrorIs(t, err, errConfirm, "of another database")
		for len(c.known) < maxConfirmations {
			add()
		}
		_, err = c.add(confirmation{database: d, who: "ann"})
		require.ErrorIs(t, err, errManyConfirmations)
		time.Sleep(confirmWithin + 1)
		add()
		assert.Len(t, c.known, 1, "old ones are forgotten")
	})
}

func TestASignInLastsTwelveHours(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s sessions
		open := func() *http.Request {
			r, w := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost:8081/", nil), httptest.NewRecorder()
			s.open(w, r, bearer.Token("x"))
			r.AddCookie(w.Result().Cookies()[0])
			return r
		}
		first := open()
		credential, ok := s.of(first)
		assert.True(t, ok)
		assert.Equal(t, bearer.Token("x"), credential)
		time.Sleep(sessionLasts)
		_, ok = s.of(first)
		assert.False(t, ok, "it has ended")
		first = open()
		time.Sleep(time.Nanosecond)
		for range maxSessions - 1 {
			open()
		}
		_, ok = s.of(first)
		assert.True(t, ok)
		last := open()
		assert.Len(t, s.known, maxSessions)
		_, ok = s.of(first)
		assert.False(t, ok, "the oldest makes room")
		_, ok = s.of(last)
		assert.True(t, ok)
	})
}
