package advisory_test

import (
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// blackHoles returns the addresses of servers that accept connections and never
// answer.
func blackHoles(t *testing.T, n int) (addresses []string) {
	t.Helper()
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts
		require.NoError(t, err)
		t.Cleanup(func() { _ = listener.Close() })
		addresses = append(addresses, listener.Addr().String())
	}
	return addresses
}

// With several hosts each one has its own timeout, here 5 s for 31 of them: the wait
// has a bound of its own.
func TestAWaitEndsInTimeThoughManyHostsAreSilent(t *testing.T) {
	t.Parallel()
	const wait, bound = 6 * time.Second, 40 * time.Second
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		u, err := url.Parse(pgtest.DSN(t))
		require.NoError(t, err)
		proxy, err := faultproxy.New(t.Context(), u.Host)
		require.NoError(t, err)
		t.Cleanup(proxy.Close)
		via, err := proxy.URL(u.String())
		require.NoError(t, err)
		u, err = url.Parse(via)
		require.NoError(t, err)
		u.Host = strings.Join(append([]string{u.Host}, blackHoles(t, 30)...), ",")
		q := u.Query()
		q.Set("connect_timeout", "5") // a login on a busy machine can take seconds
		u.RawQuery = q.Encode()
		l := open(t, advisory.Config{DSN: u.String(), SessionTTL: time.Second, HandOverBudget: -1, Wait: wait, MaxConns: 20})
		shared := l.With(advisory.Options{Shared: true})
		_, err = shared.Acquire(t.Context(), agents.ID(1))
		require.NoError(t, err)
		lock, err := l.Acquire(t.Context(), agents.ID(2))
		require.NoError(t, err)
		if err = lock.Release(); err != nil { // a busy machine can take longer than the SessionTTL
			require.ErrorIs(t, err, advisory.ErrLost)
		}
		proxy.Set(faultproxy.Hold)
		defer proxy.Set(faultproxy.Pass)

		calls := map[string]func() error{
			"a key":       func() error { _, err := l.Acquire(t.Context(), agents.ID(3)); return err },
			"another key": func() error { _, err := l.Acquire(t.Context(), agents.ID(4)); return err },
			"a try":       func() error { _, err := l.TryAcquire(t.Context(), agents.ID(5)); return err },
			"a reader":    func() error { _, err := shared.Acquire(t.Context(), agents.ID(1)); return err },
			"all":         func() error { _, err := l.AcquireAll(t.Context(), agents.ID(6), agents.ID(7)); return err },
			"a slot":      func() error { _, err := l.AcquireSlot(t.Context(), agents.ID(8), 2); return err },
			"no wait": func() error {
				_, err := l.With(advisory.Options{Wait: time.Millisecond}).Acquire(t.Context(), agents.ID(9))
				return err
			},
		}
		var all sync.WaitGroup
		for name, call := range calls {
			all.Go(func() {
				start := time.Now()
				err := call()
				took := time.Since(start)
				t.Logf("%s: %v: %v", name, took.Round(time.Millisecond), err)
				assert.Error(t, err, name)
				assert.Less(t, took, bound, name)
			})
		}
		all.Wait()
	})
}
