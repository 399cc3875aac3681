package loadcmd_test

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/cli"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

type loadAnswer struct {
	Operations []struct {
		Operation string
		Count     int
		P99       float64 `json:"p99_ms"`
	}
	Counts struct {
		Expired       int
		Failed        int
		StaleWrites   int `json:"stale_writes_refused"`
		StaleRenewals int `json:"stale_renewals_refused"`
		StaleReleases int `json:"stale_releases_refused"`
	}
	Violations []struct{ Invariant, Lock, What string }
}

func TestTheLoadFindsNoViolationOnEitherStore(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	for store, args := range map[string][]string{"sqlite": nil, "postgres": {"--store", pgtest.DSN(t)}} {
		var d loadAnswer
		for _, duration := range []string{"5s", "20s", "80s"} { // on a busy machine it does little in its time
			load := []string{"load", "--target", "lease", "--clients", "40", "--duration", duration, "--locks", "20", "--expire", "10", "-o", "json"}
			stdout, stderr, code := clitest.Run(t, nil, append(load, args...)...)
			require.Zero(t, code, "%s: %s", store, stderr)
			d = clitest.Decode[loadAnswer](t, stdout)
			require.Empty(t, d.Violations, store)
			require.Len(t, d.Operations, 3)
			if d.didAll() {
				break
			}
		}
		assert.True(t, d.didAll(), "%s: %+v", store, d)
	}
}

// didAll reports whether each operation was done, and each refusal of what is stale happened.
func (d *loadAnswer) didAll() bool {
	for _, o := range d.Operations {
		if o.Count == 0 {
			return false
		}
	}
	return min(d.Counts.Expired, d.Counts.StaleWrites, d.Counts.StaleRenewals, d.Counts.StaleReleases) > 0
}

func TestTheLoadFindsNoViolationWhereTheServerIsKilledAgainAndAgain(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	file := "sqlite:" + filepath.Join(t.TempDir(), "locks.db")
	address := clitest.Reserve(t)
	server, _ := clitest.Serve(t, nil, "--store", file, "--listen", address)
	load := clitest.Start(t, nil, "load", "--server", "http://"+address, "--clients", "40", "--locks", "4", "--duration", "9s", "-o", "json")
	await.Until(t, await.Soon, func() bool { // it has found its server
		response, err := http.Get("http://" + address + "/v1/locks")
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return strings.Contains(string(body), "fencing_token")
	}, load.Stderr.String)
	for range 5 {
		select {
		case <-load.Done:
		case <-time.After(time.Second):
		}
		server.Signal(syscall.SIGKILL)
		server.Wait()
		server, _ = clitest.Serve(t, nil, "--store", file, "--listen", address)
	}
	require.Zero(t, load.Wait(), load.Stderr.String())
	d := clitest.Decode[loadAnswer](t, load.Stdout.String())
	assert.Positive(t, d.Counts.Failed, "answers were lost")
	assert.Positive(t, d.Operations[0].Count)
}

func TestTheLoadEndsWith70AtAServerThatBreaksAPromise(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		store lease.Store
		more  []string
		says  string
	}{
		"a token repeats":         {&repeats{Store: leasetest.NewStore()}, nil, "token"},
		"a stale release is done": {anybody{leasetest.NewStore()}, nil, ""}, // as whatever shows first
		"no fencing":              {leasetest.NewStore(), []string{"--no-fencing", "--expire", "20"}, "fence"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, env := clitest.LockServer(t, c.store)
			p := clitest.Start(t, env, append([]string{"load", "--clients", "20", "--locks", "5", "--duration", "25s"}, c.more...)...)
			assert.Equal(t, 70, p.Wait(), p.Stdout.String())
			assert.Contains(t, p.Stderr.String(), "a promise was broken: "+c.says)
			assert.Contains(t, p.Stdout.String(), " violations")
		})
	}
}

// repeats counts tokens modulo 16, which is what a server does that lost its count.
type repeats struct{ lease.Store }

func (s *repeats) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	l, err := s.Store.Acquire(ctx, r)
	l.Token = l.Token%16 + 1
	return l, err
}

func (s *repeats) claim(ctx context.Context, c lease.Claim) lease.Claim {
	if record, err := s.Get(ctx, c.Name); err == nil && record.Holder == c.Holder && record.ID == c.ID && record.Token%16+1 == c.Token {
		return record.Claim
	}
	return c
}

func (s *repeats) Renew(ctx context.Context, r lease.RenewRequest) (lease.Lease, error) {
	asked := r.Claim
	r.Claim = s.claim(ctx, asked)
	l, err := s.Store.Renew(ctx, r)
	l.Claim = asked
	return l, err
}

func (s *repeats) Release(ctx context.Context, c lease.Claim) error {
	return s.Store.Release(ctx, s.claim(ctx, c))
}

// anybody lets every claim release.
type anybody struct{ lease.Store }

func (s anybody) Release(ctx context.Context, c lease.Claim) error {
	record, err := s.Get(ctx, c.Name)
	if err != nil {
		return err
	}
	return s.Store.Release(ctx, record.Claim)
}

func TestMain(m *testing.M) { clitest.Main(m, func() int { return cli.Main(cli.Options{}) }) }
