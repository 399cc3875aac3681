package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

// lazyServer acknowledges commits before they are written, unless it is told
// otherwise, and writes nothing before it must.
func lazyServer(t *testing.T) *pgserver.Server {
	t.Helper()
	return startServer(t, map[string]string{
		"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB", "autovacuum": "off", "bgwriter_delay": "10s",
	})
}

func TestNothingThatWasAcknowledgedIsLostInACrashOfTheServer(t *testing.T) {
	t.Parallel()
	server := lazyServer(t)
	s := newStore(t, server.DSN(""))
	for range soak.Size(t, 3, 30) {
		require.Empty(t, crash(t, server, s))
	}
}

func TestTheCrashTestCatchesAServerThatAcknowledgesEarly(t *testing.T) {
	t.Parallel()
	server := lazyServer(t)
	s := newStore(t, server.DSN(""))
	newJudge(t, server.DSN("")).exec("CREATE OR REPLACE FUNCTION pglatch_lease.durable(p_wait text) RETURNS void LANGUAGE sql AS ''")
	var found string
	for range 30 { // what a crash forgets is what was written since the last flush: little, by chance
		found += fmt.Sprintln(crash(t, server, s))
		if strings.Contains(found, "lost: ") && strings.Contains(found, "repeats, after") {
			return
		}
	}
	assert.Contains(t, found, "lost: ")
	assert.Contains(t, found, "repeats, after")
}

// crash kills the server under load, starts it, and returns what it forgot.
func crash(t *testing.T, server *pgserver.Server, s *postgres.Store) []string {
	t.Helper()
	const enough = 300
	var clients [8]*crashClient
	var acknowledged atomic.Int64
	loaded, killed := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	for i := range clients {
		c := &crashClient{store: s, hot: fmt.Sprintf("client-%d-of-%d", i, server.PID()), acknowledged: func() {
			if acknowledged.Add(1) == enough {
				close(loaded)
			}
		}}
		clients[i] = c
		wg.Go(func() { c.run(t.Context(), killed) })
	}
	await.Receive(t, patience, loaded, "no load")
	close(killed)
	require.NoError(t, server.Kill())
	wg.Wait()
	require.NoError(t, server.Start(t.Context()))
	var violations []string
	after := open(t, server.DSN(""), nil) // without connections that are broken
	for _, c := range clients {
		c.store = after
		violations = append(violations, c.check(t)...)
	}
	return violations
}

// A crashClient acquires and releases one name, keeps leases on others, and goes on
// until the server is killed.
type crashClient struct {
	store        *postgres.Store
	hot          string
	acknowledged func()

	token    uint64        // of the last lease of hot that it was granted
	released uint64        // the last token whose release was acknowledged
	kept     []lease.Claim // never released
}

func (c *crashClient) run(ctx context.Context, killed <-chan struct{}) {
	for i := 0; ; i++ {
		err := c.turn(ctx, i)
		select {
		case <-killed:
			if err != nil {
				return
			}
		default: // an error is of a connection of the pool that the last crash has cut
		}
	}
}

func (c *crashClient) turn(ctx context.Context, i int) error {
	l, err := c.store.Acquire(ctx, lease.AcquireRequest{Name: c.hot, Holder: c.hot, TTL: ttl})
	if err != nil {
		return err
	}
	c.token = l.Token
	c.acknowledged()
	if err := c.store.Release(ctx, l.Claim); err != nil {
		return err
	}
	c.released = l.Token
	c.acknowledged()
	l, err = c.store.Acquire(ctx, lease.AcquireRequest{Name: fmt.Sprintf("%s/%d", c.hot, i), Holder: c.hot, TTL: ttl})
	if err != nil {
		return err
	}
	c.kept = append(c.kept, l.Claim)
	c.acknowledged()
	return nil
}

func (c *crashClient) check(t *testing.T) (violations []string) {
	t.Helper()
	for _, claim := range c.kept {
		if _, err := c.store.Renew(t.Context(), lease.RenewRequest{Claim: claim, TTL: ttl}); err != nil {
			violations = append(violations, fmt.Sprintf("lost: %v", err))
		}
	}
	record, err := c.store.Get(t.Context(), c.hot)
	if !errors.Is(err, lease.ErrNotFound) {
		require.NoError(t, err)
	}
	if record.State == lease.Held { // by an acquisition, or a release, whose answer was lost
		if record.Token <= c.released {
			violations = append(violations, fmt.Sprintf("%s: token %d was released, and is held", c.hot, record.Token))
		}
		require.NoError(t, c.store.Release(t.Context(), record.Claim))
	}
	if token := cycle(t, c.store, c.hot); token <= c.token {
		violations = append(violations, fmt.Sprintf("%s: token %d repeats, after %d", c.hot, token, c.token))
	}
	return violations
}
