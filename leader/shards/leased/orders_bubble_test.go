package leased_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/lease"
)

// stay looks and renews for a time.
func stay(t *testing.T, s driver.Session, d time.Duration) (v driver.View) {
	t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(ttl / 3)
		renew(t, s)
		v = look(t, s, 0)
	}
	return v
}

func TestPinsAndDrainsLastAsLongAsAnybodyTakesPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		b := newBackend(t, f)
		require.NoError(t, b.Pin(t.Context(), "eu/acme", "z"))
		require.NoError(t, b.Drain(t.Context(), "a", true))
		a := open(t, f, "a")
		v := stay(t, a, 3*lease.MaxTTL)
		assert.Equal(t, map[string]string{"eu/acme": "z"}, v.Pins)
		assert.True(t, v.Members[0].Draining)

		require.NoError(t, a.Leave(t.Context()))
		time.Sleep(lease.MaxTTL / 5)
		a = open(t, f, "a")
		assert.Equal(t, v.Pins, look(t, a, 0).Pins, "and some hours longer at least")
		require.NoError(t, a.Leave(t.Context()))
		time.Sleep(lease.MaxTTL)
		assert.Empty(t, look(t, open(t, f, "a"), 0).Pins, "the limit that is documented")
	})
}

func TestAPinThatWasEndedIsNotRenewed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		b := newBackend(t, f)
		a := open(t, f, "a")
		require.NoError(t, b.Pin(t.Context(), "1", "z"))
		require.NoError(t, b.Pin(t.Context(), "1", "y"), "another one takes its place")
		assert.Equal(t, map[string]string{"1": "y"}, look(t, a, 0).Pins)
		stay(t, a, lease.MaxTTL*9/10)
		require.NoError(t, b.Pin(t.Context(), "1", ""))
		require.NoError(t, b.Pin(t.Context(), "1", ""), "twice")
		require.NoError(t, b.Pin(t.Context(), "2", ""), "that never was")
		assert.Empty(t, stay(t, a, lease.MaxTTL).Pins)
	})
}

func TestAPinWhoseAnswerWasLostIsMadeByAskingAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFaulty()
		b := newBackend(t, f)
		a := open(t, f, "a")
		for _, operation := range []string{"acquire", "renew"} {
			f.set(func(f *faulty) { f.after = at(operation, "", errReset) })
			require.ErrorIs(t, b.Pin(t.Context(), "1", "z"), errReset)
			f.set(func(f *faulty) { f.after = nil })
			require.NoError(t, b.Pin(t.Context(), "1", "y"))
			assert.Equal(t, map[string]string{"1": "y"}, look(t, a, 0).Pins)
			require.NoError(t, b.Pin(t.Context(), "1", ""))
			assert.Empty(t, look(t, a, 0).Pins)
		}
	})
}
