package actions

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/bearer"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/monitor/fleet"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestTheAuditGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "audit")
	require.NoError(t, os.WriteFile(name, []byte(`{"id":"A","who":"ann","outcome":"begun"}`+"\n"+`{"id":"A","who":"ann","outcome":"done"}`+"\n"+`{"id":"B","wh`), 0o600))
	a, err := openAudit(name)
	require.NoError(t, err)
	require.NoError(t, a.add(Entry{ID: "C", Who: "eva", Outcome: done, Detail: strings.Repeat("x", 5000)}))
	newest := a.newest()
	require.Len(t, newest, 2, "one for each id, without half a line")
	assert.Equal(t, []string{"C", "A"}, []string{newest[0].ID, newest[1].ID})
	assert.Equal(t, done, newest[1].Outcome)
	assert.LessOrEqual(t, len(newest[0].Detail), maxText+10)
	require.NoError(t, a.close())
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	require.Len(t, lines, 4)
	assert.Contains(t, lines[3], `"id":"C"`, "on a line of its own")
	for i := range recent + 5 {
		a.remember(Entry{ID: strconv.Itoa(i)})
	}
	assert.Len(t, a.newest(), recent)
}

func TestAfterSigningInAViewIsShownAndNothingElse(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]string{
		"": "", "?": "", "graph": "graph", "incident?id=v-1&verdict=deadlock": "incident?id=v-1&verdict=deadlock", "?find=%0d%0aX": "?find=%0D%0AX",
		"//evil.example": "", "https://evil.example": "", "javascript:alert(1)": "", "../../x": "", "\\evil": "", "key?id=%zz": "key",
	} {
		assert.Equal(t, want, viewOf(next), next)
	}
}

func TestAPlanThatEndsMoreIsAnotherOne(t *testing.T) {
	t.Parallel()
	shown := &plan{title: "t", same: "s", ends: []string{"a", "b"}}
	for _, c := range []struct {
		now    plan
		within bool
	}{
		{plan{title: "t", same: "s", ends: []string{"a", "b"}}, true},
		{plan{title: "fewer", same: "s", ends: []string{"b"}}, true},
		{plan{title: "t", same: "s", ends: []string{"a", "c"}}, false},
		{plan{title: "t", same: "other", ends: []string{"a"}}, false},
		{plan{title: "t", same: "s", ends: []string{"a", "b", "c"}}, false},
	} {
		assert.Equal(t, c.within, c.now.within(shown), "%+v", c.now)
	}
}

func TestAConfirmationIsGoodForTwoMinutes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, err := New(Config{})
		require.NoError(t, err)
		d := &Database{}
		add := func() string {
			shown, err := s.show(d, &Person{Name: "ann"}, Request{}, &plan{})
			require.NoError(t, err)
			return shown.Confirm
		}
		late, early, other := add(), add(), add()
		bubble.Sleep(confirmWithin)
		_, ok := s.pendingOf(d, early, "ann")
		assert.True(t, ok)
		assert.True(t, s.pending.remove(early))
		assert.False(t, s.pending.remove(early), "once")
		_, ok = s.pendingOf(d, early, "ann")
		assert.False(t, ok, "it was used")
		_, ok = s.pendingOf(&Database{Name: "staging"}, other, "ann")
		assert.False(t, ok, "of another database")
		_, ok = s.pendingOf(d, other, "eva")
		assert.False(t, ok, "of somebody else")
		bubble.Sleep(time.Nanosecond)
		_, ok = s.pendingOf(d, late, "ann")
		assert.False(t, ok, "too old")
		bubble.Sleep(time.Nanosecond)
		for range maxTickets {
			add()
		}
		_, err = s.show(d, &Person{Name: "ann"}, Request{}, &plan{})
		require.ErrorIs(t, err, errManyConfirmations)
		bubble.Sleep(confirmWithin + 1)
		add()
		assert.Len(t, s.pending.known, 1, "old ones are forgotten")
	})
}

func TestASignInLastsTwelveHours(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := sessions{tickets[bearer.Credential]{lasts: sessionLasts, evicts: true}}
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
		bubble.Sleep(sessionLasts + 1)
		_, ok = s.of(first)
		assert.False(t, ok, "it has ended")
		first = open()
		bubble.Sleep(time.Nanosecond)
		for range maxTickets - 1 {
			open()
		}
		_, ok = s.of(first)
		assert.True(t, ok)
		last := open()
		assert.Len(t, s.known, maxTickets)
		_, ok = s.of(first)
		assert.False(t, ok, "the oldest makes room")
		_, ok = s.of(last)
		assert.True(t, ok)
	})
}

func TestTheFormOffersWhatTheTablesHave(t *testing.T) {
	t.Parallel()
	tables := &fleet.Fleet{
		Groups: []fleet.Group{
			{Name: "tenant=7", Nodes: []fleet.Node{{Identity: "web-2"}, {Identity: "web-1"}}, List: []fleet.Shard{{Name: "b"}, {Name: "a"}}},
			{Name: "region=9", Nodes: []fleet.Node{{Identity: "web-3"}}},
		},
		Mailboxes: []fleet.Mailbox{{Name: "chat", Turns: []fleet.Turn{{Entity: "chat/2"}, {Entity: "chat/1"}}}, {Name: "mail"}},
		Leases:    []fleet.Lease{{Name: "nightly", State: lease.Held.String()}, {Name: "old", State: lease.Free.String()}},
	}
	offers := func(d Database) *state {
		s := &state{Groups: []groupState{{Group: "tenant=7", Nodes: []string{"web-1"}, Shards: []string{"a"}}}, Leases: []string{}}
		d.addTables(s, tables)
		return s
	}
	s := offers(Database{})
	assert.Equal(t, []groupState{
		{Group: "tenant=7", Nodes: []string{"web-1", "web-2"}, Shards: []string{"a", "b"}}, // b has no owner
		{Group: "region=9", Nodes: []string{"web-3"}, Shards: []string{}},
	}, s.Groups)
	assert.Equal(t, []mailboxState{{"chat", []string{"chat/1", "chat/2"}}, {"mail", []string{}}}, s.Mailboxes)
	assert.Equal(t, []string{"nightly"}, s.Leases, "nobody has the other one")

	elsewhere := Database{Leases: func() (*leasehttp.Client, error) { panic("BUG: nobody asked for it") }}
	assert.Empty(t, offers(elsewhere).Leases, "they are not those of the lock server")
}
