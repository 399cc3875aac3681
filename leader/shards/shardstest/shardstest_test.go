package shardstest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pglatch/pglatch/internal/test/broken"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestTheStoreInMemoryConforms(t *testing.T) {
	t.Parallel()
	run(t, "")
}

// run runs the suite on the store in memory, with a fault of this kind.
func run(t *testing.T, kind string) {
	t.Helper()
	shardstest.Run(t, shardstest.Harness{
		TTL: 3 * time.Second, // no pause of the machine ends it
		New: func(*testing.T) func() driver.Backend {
			store := shardstest.NewStore()
			return func() driver.Backend { return faulty{store.Backend(), kind} }
		},
		Kill: func(_ *testing.T, b driver.Backend, _ driver.Session) {
			b.(faulty).Kill(0) // the suite ends the oldest
		},
		Cut: func(_ *testing.T, b driver.Backend) func() {
			b.(faulty).Cut()
			return b.(faulty).Heal
		},
	})
}

// A faulty backend is right but for what its kind changes.
type faulty struct {
	*shardstest.Backend
	kind string
}

func (b faulty) Open(ctx context.Context, self driver.Member, ttl time.Duration) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, self, ttl)
	if err != nil {
		return nil, err
	}
	return &faultySession{s, b}, nil
}

type faultySession struct {
	driver.Session
	of faulty
}

func (s *faultySession) Claim(ctx context.Context, names []string) ([]driver.Grant, error) {
	grants, err := s.Session.Claim(ctx, names)
	switch {
	case err != nil:
	case s.of.kind == "claims go by membership": // who is alone owns all
		if v, lookErr := s.Look(ctx, 0); lookErr == nil && len(v.Members) > 0 && v.Members[0].Identity == "node-0" {
			grants = nil
			for _, name := range names {
				grants = append(grants, driver.Grant{Name: name, Term: driver.Term{N: 1}})
			}
		}
	case s.of.kind == "terms stand still":
		for i := range grants {
			grants[i].Term = driver.Term{N: 1}
		}
	}
	return grants, err
}

func (s *faultySession) Release(ctx context.Context, names []string) error {
	if s.of.kind == "a release does nothing" {
		return nil
	}
	return s.Session.Release(ctx, names)
}

func (s *faultySession) Changes() driver.Changes {
	changes := s.Session.Changes()
	switch s.of.kind {
	case "released shards are not named":
		changes.Released = nil
	case "a released name is another":
		for i, name := range changes.Released {
			changes.Released[i] = strings.ReplaceAll(name, `"`, `\"`)
		}
	}
	return changes
}

func (b faulty) Observe(ctx context.Context) (driver.Observation, error) {
	o, err := b.Backend.Observe(ctx)
	if b.kind == "what nobody owns is forgotten" {
		for name := range o.Terms {
			if o.Owners[name] == "" {
				delete(o.Terms, name)
			}
		}
	}
	return o, err
}

func (s *faultySession) Look(ctx context.Context, known uint64) (driver.View, error) {
	v, err := s.Session.Look(ctx, known)
	if s.of.kind == "a version stands still" {
		v.Version = 1
	}
	return v, err
}

func (s *faultySession) Renew(ctx context.Context, ttl time.Duration) ([]string, error) {
	lost, err := s.Session.Renew(ctx, ttl)
	switch {
	case s.of.kind == "a renewal never fails":
		err = nil
	case s.of.kind == "renewals do nothing" && err == nil:
		_, err = s.Session.Renew(ctx, ttl/1000)
	}
	return lost, err
}

func (s *faultySession) Announce(ctx context.Context, self driver.Member) error {
	if s.of.kind == "nothing is announced" {
		return nil
	}
	return s.Session.Announce(ctx, self)
}

func (s *faultySession) Leave(ctx context.Context) error {
	if s.of.kind == "a session that leaves keeps its shards" {
		return nil
	}
	return s.Session.Leave(ctx)
}

func TestTheSuiteFindsWhatIsBroken(t *testing.T) {
	broken.Run(t, run, map[string]string{
		"claims go by membership":                "of many sessions one owns each shard",
		"terms stand still":                      "terms of a shard rise",
		"a release does nothing":                 "a release frees shards at once",
		"released shards are not named":          "a node hears of shards that become free",
		"a released name is another":             "a node hears of shards that become free",
		"a version stands still":                 "a version stands for one view",
		"a renewal never fails":                  "the node learns that a session ended",
		"renewals do nothing":                    "a session lasts as long as it is renewed",
		"nothing is announced":                   "what a node says of itself can change",
		"a session that leaves keeps its shards": "a session that leaves is gone",
		"what nobody owns is forgotten":          "who takes no part sees members",
	})
}
