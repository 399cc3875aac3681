package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// operationsPerKill is how many calls are answered between two kills.
const operationsPerKill = 350

func TestAHistoryWithCrashesOfTheServerIsLegal(t *testing.T) {
	t.Parallel()
	kills := soak.Size(t, 2, 30)
	server := startServer(t, nil)
	dsn := server.DSN("") + "&connect_timeout=2"
	newStore(t, dsn)
	history := leasetest.NewHistory()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var answered, asked atomic.Int64
	enough := make(chan struct{}, 1)
	var wg sync.WaitGroup
	for i := range 6 {
		own := open(t, dsn, nil)
		client := history.Client(own)
		wg.Go(func() {
			holder := fmt.Sprintf("client-%d", i)
			for n := 0; ctx.Err() == nil; n++ {
				asked.Add(1)
				err := historyTurn(ctx, client, holder, n)
				if err == nil || errors.Is(err, lease.ErrHeld) {
					if answered.Add(1)%operationsPerKill == 0 {
						select {
						case enough <- struct{}{}:
						default:
						}
					}
				}
			}
		})
	}
	for range kills {
		await.Receive(t, 3*patience, enough, "no load")
		require.NoError(t, server.Kill())
		require.NoError(t, server.Start(t.Context()))
	}
	cancel()
	wg.Wait()
	require.NoError(t, history.Check(time.Minute))
	t.Logf("%d kills, %d turns, %+v", kills, asked.Load(), history.Counts())
	assert.Positive(t, history.Counts().Granted)
}

// historyTurn acquires one of some names, new ones all the time because a call with an
// unknown outcome makes the check of a name slow, renews it at times, and releases it or leaves it to
// expire.
func historyTurn(ctx context.Context, s lease.Store, holder string, n int) error {
	name := fmt.Sprintf("job-%d-%d", n/20, rand.IntN(3))
	ttl := time.Duration(20+rand.IntN(200)) * time.Millisecond
	l, err := s.Acquire(ctx, lease.AcquireRequest{Name: name, Holder: holder, TTL: ttl})
	if err != nil {
		return err
	}
	if rand.IntN(2) == 0 {
		if _, err := s.Renew(ctx, lease.RenewRequest{Claim: l.Claim, TTL: ttl}); err != nil {
			return err
		}
	}
	if rand.IntN(4) == 0 {
		return nil
	}
	return s.Release(ctx, l.Claim)
}
