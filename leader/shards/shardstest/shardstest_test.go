package shardstest_test

import (
	"context"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestTheStoreInMemoryConforms(t *testing.T) {
	t.Parallel()
	shardstest.Run(t, harness(""))
}

// harness is for the store in memory, with a fault of this kind.
func harness(kind string) shardstest.Harness {
	return shardstest.Harness{
		TTL: 3 * time.Second, // no pause of the machine ends it
		New: func(*testing.T) func() driver.Backend {
			store := shardstest.NewStore()
			return func() driver.Backend { return broken{store.Backend(), kind} }
		},
		Kill: func(_ *testing.T, b driver.Backend, _ driver.Session) {
			b.(broken).Kill(0) // the suite ends the oldest
		},
		Cut: func(_ *testing.T, b driver.Backend) func() {
			b.(broken).Cut()
			return b.(broken).Heal
		},
	}
}

// A broken backend is right but for what its kind changes.
type broken struct {
	*shardstest.Backend
	kind string
}

func (b broken) Open(ctx context.Context, self driver.Member, ttl time.Duration) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, self, ttl)
	if err != nil {
		return nil, err
	}
	return &brokenSession{s, b}, nil
}

type brokenSession struct {
	driver.Session
	broken broken
}

func (s *brokenSession) Claim(ctx context.Context, names []string) ([]driver.Grant, error) {
	grants, err := s.Session.Claim(ctx, names)
	switch {
	case err != nil:
	case s.broken.kind == "claims go by membership": // who is alone owns all
		if v, lookErr := s.Look(ctx, 0); lookErr == nil && len(v.Members) > 0 && v.Members[0].Identity == "node-0" {
			grants = nil
			for _, name := range names {
				grants = append(grants, driver.Grant{Name: name, Term: driver.Term{N: 1}})
			}
		}
	case s.broken.kind == "terms stand still":
		for i := range grants {
			grants[i].Term = driver.Term{N: 1}
		}
	}
	return grants, err
}

func (s *brokenSession) Release(ctx context.Context, names []string) error {
	if s.broken.kind == "a release does nothing" {
		return nil
	}
	return s.Session.Release(ctx, names)
}

func (s *brokenSession) Passed(ctx context.Context, released []driver.Grant) (int, error) {
	if s.broken.kind == "all has passed" {
		return len(released), nil
	}
	return s.Session.(driver.Passer).Passed(ctx, released) //nolint:forcetypeassert // the memory's is one
}

func (b broken) Observe(ctx context.Context) (driver.Observation, error) {
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

func (s *brokenSession) Look(ctx context.Context, known uint64) (driver.View, error) {
	v, err := s.Session.Look(ctx, known)
	if s.broken.kind == "a version stands still" {
		v.Version = 1
	}
	return v, err
}

func (s *brokenSession) Renew(ctx context.Context, ttl time.Duration) ([]string, error) {
	lost, err := s.Session.Renew(ctx, ttl)
	switch {
	case s.broken.kind == "a renewal never fails":
		err = nil
	case s.broken.kind == "renewals do nothing" && err == nil:
		_, err = s.Session.Renew(ctx, ttl/1000)
	}
	return lost, err
}

func (s *brokenSession) Announce(ctx context.Context, self driver.Member) error {
	if s.broken.kind == "nothing is announced" {
		return nil
	}
	return s.Session.Announce(ctx, self)
}

func (s *brokenSession) Leave(ctx context.Context) error {
	if s.broken.kind == "who leaves keeps its shards" {
		return nil
	}
	return s.Session.Leave(ctx)
}

// The suite is worth what it finds. It runs in this test's own binary, where it fails.
func TestTheSuiteFindsWhatIsBroken(t *testing.T) {
	t.Parallel()
	for kind, found := range map[string]string{
		"claims go by membership":       "of_many_sessions_one_owns_each_shard",
		"terms stand still":             "terms_of_a_shard_rise",
		"a release does nothing":        "a_release_frees_shards_at_once",
		"all has passed":                "what_others_have_claimed_since_has_passed",
		"a version stands still":        "a_version_stands_for_one_view",
		"a renewal never fails":         "the_node_is_told_that_a_session_ended",
		"renewals do nothing":           "a_session_lasts_as_long_as_it_is_renewed",
		"nothing is announced":          "what_a_node_says_of_itself_can_change",
		"who leaves keeps its shards":   "a_session_that_leaves_is_gone",
		"what nobody owns is forgotten": "who_takes_no_part_sees_members",
		"":                              "", // the control of the control
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestABrokenBackend$/"+regexp.QuoteMeta(found), "-test.timeout=5m")
			cmd.Env = append(os.Environ(), "SHARDSTEST_BROKEN=yes "+kind)
			out, err := cmd.CombinedOutput()
			if kind == "" {
				require.NoError(t, err, "%s", out)
				return
			}
			require.Error(t, err, "%s", out)
			assert.Contains(t, string(out), "--- FAIL: TestABrokenBackend/"+found)
			assert.NotContains(t, string(out), "panic:")
		})
	}
}

func TestABrokenBackend(t *testing.T) {
	kind := os.Getenv("SHARDSTEST_BROKEN")
	if kind == "" {
		t.Skip("TestTheSuiteFindsWhatIsBroken runs it")
	}
	shardstest.Run(t, harness(kind[len("yes "):]))
}
