package sqlite_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/sqlite"
)

// What the parent tells its child.
const (
	childPath  = "PGLATCH_SQLITE_CHILD" // of the file
	childEarly = "PGLATCH_SQLITE_EARLY" // answer before the commit
)

const (
	crashClients = 40
	crashNames   = 60 // so some names have several clients
)

// child loads a store until it is killed, and says what it was answered: "granted",
// before it asks for a release "releasing", and after it "released".
func child(path string) int {
	ctx := context.Background()
	open := func() (*sqlite.Store, error) { return sqlite.Open(ctx, path, sqlite.Config{}) }
	if os.Getenv(childEarly) != "" {
		open = func() (*sqlite.Store, error) { return sqlite.OpenEarly(ctx, path) }
	}
	s, err := open()
	if err != nil {
		fmt.Println("failed", err)
		return 1
	}
	for i := range crashClients {
		go func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for {
				name := fmt.Sprint("job/", random.IntN(crashNames))
				l, err := s.Acquire(ctx, request(name))
				if err != nil {
					continue
				}
				say("granted", l.Claim)
				if random.IntN(3) == 0 {
					l, _ = s.Renew(ctx, lease.RenewRequest{Claim: l.Claim, TTL: 2 * time.Hour})
				}
				say("releasing", l.Claim)
				if s.Release(ctx, l.Claim) == nil {
					say("released", l.Claim)
				}
			}
		}()
	}
	select {}
}

// say writes a line at once: nothing of it is lost with the process.
func say(what string, c lease.Claim) {
	_, _ = os.Stdout.WriteString(fmt.Sprintln(what, c.Name, c.Token, c.ID))
}

// A witness knows what was acknowledged.
type witness struct {
	ids    map[string]map[uint64]string // by name and token
	last   map[string]*acknowledged
	faults []string
}

// acknowledged is what is known of the last lease of a name.
type acknowledged struct {
	token             uint64
	id                string
	leaving, released bool
}

func newWitness() *witness {
	return &witness{ids: make(map[string]map[uint64]string), last: make(map[string]*acknowledged)}
}

func (w *witness) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Sprintf(format, args...))
}

func (w *witness) granted(name string, token uint64, id string) {
	if w.ids[name] == nil {
		w.ids[name] = make(map[uint64]string)
	}
	if before, ok := w.ids[name][token]; ok {
		w.fault("%s: token %d was granted to %s and to %s", name, token, before, id)
	}
	w.ids[name][token] = id
	if a := w.last[name]; a == nil || token > a.token {
		w.last[name] = &acknowledged{token: token, id: id}
	}
}

// hear takes a line of a child. Lines of one client come in order, so what is said
// of a lease comes after its grant; those of several may not.
func (w *witness) hear(line string) {
	var what, name, number, id string
	if n, _ := fmt.Sscan(line, &what, &name, &number, &id); n != 4 {
		return // cut off by the kill
	}
	token, _ := strconv.ParseUint(number, 10, 64)
	switch a := w.last[name]; {
	case what == "granted":
		w.granted(name, token, id)
	case a == nil || a.token != token:
	case what == "releasing":
		a.leaving = true
	case what == "released":
		a.released = true
	}
}

// compare finds what the store does not know any more, and then uses each name, so
// that the next child can.
func (w *witness) compare(t *testing.T, s *sqlite.Store) {
	t.Helper()
	for name, a := range w.last {
		r, err := s.Get(t.Context(), name)
		switch {
		case err != nil:
			w.fault("%s: token %d is lost: %v", name, a.token, err)
			continue
		case r.Token < a.token:
			w.fault("%s: token %d is lost, the last is %d", name, a.token, r.Token)
		case r.Token == a.token && r.ID != a.id:
			w.fault("%s: token %d is another's", name, a.token)
		case r.Token > a.token && !a.leaving:
			w.fault("%s: granted again, with token %d, while %d holds", name, r.Token, a.token)
		case r.Token == a.token && !a.leaving && r.State != lease.Held:
			w.fault("%s: token %d is %s and was not released", name, a.token, r.State)
		case r.Token == a.token && a.released && r.State != lease.Free:
			w.fault("%s: the release of token %d is lost", name, a.token)
		}
		if r.State == lease.Held {
			require.NoError(t, s.Release(t.Context(), r.Claim))
		}
		l := acquire(t, s, name)
		w.granted(name, l.Token, l.ID)
		if l.Token <= a.token {
			w.fault("%s: token %d after %d", name, l.Token, a.token)
		}
		require.NoError(t, s.Release(t.Context(), l.Claim))
		w.last[name].leaving, w.last[name].released = true, true
	}
}

// round starts a child, kills it under load, and compares.
func (w *witness) round(t *testing.T, path string, early bool) {
	t.Helper()
	env := []string{childPath + "=" + path}
	if early {
		env = append(env, childEarly+"=1")
	}
	p := proctest.Start(t, proctest.Self(t, env...))
	n, end := 0, 500+rand.IntN(3000)
	for line := range p.Lines() {
		w.hear(line)
		if n++; n == end {
			p.Signal(syscall.SIGKILL)
		}
	}
	require.Equal(t, 128+9, p.Wait())
	s, err := sqlite.Open(t.Context(), path, sqlite.Config{})
	require.NoError(t, err)
	w.compare(t, s)
	require.NoError(t, s.Close())
}

func TestKilledUnderLoadNothingAcknowledgedIsLostOrGrantedTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("not in the short form of the tests")
	}
	t.Parallel()
	path, w := newPath(t), newWitness()
	for range soak.Size(t, 3, 30) {
		w.round(t, path, false)
		require.Empty(t, w.faults)
	}
	t.Logf("%d names", len(w.last))
}

// The control: the same test finds what a store loses that answers before its commit.
func TestKilledUnderLoadAStoreThatAnswersEarlyIsCaught(t *testing.T) {
	t.Parallel()
	path, w := newPath(t), newWitness()
	for range 30 {
		if w.round(t, path, true); len(w.faults) > 0 {
			t.Log(w.faults[0])
			return
		}
	}
	t.Error("nothing was found in 30 kills")
}
