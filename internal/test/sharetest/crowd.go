package sharetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/shared"
)

// A Crowd repeatedly requests a lock, a slot or the whole, and releases it, or lets it expire.
type Crowd struct {
	Clients int
	Turns   int // of each client
	Slots   int
	TTL     time.Duration
	Writers bool // some request the whole lock
}

// A Client requests a share, and ends it.
type Client interface {
	Acquire(ctx context.Context, r shared.Request, wait time.Duration) (shared.Share, error)
	Release(ctx context.Context, c lease.Claim) error
}

// A Remote is the client of a lock server.
type Remote struct{ *leasehttp.Client }

// Acquire implements Client.
func (r Remote) Acquire(ctx context.Context, request shared.Request, wait time.Duration) (shared.Share, error) {
	return r.AcquireShare(ctx, request, wait)
}

var epoch = time.Now()

// Hold is the time for which a client could rely on a share, from now on.
func Hold(share shared.Share, exclusive bool) judge.Hold {
	till := lease.Trust(share.Asked, share.Lease, 0).Time()
	return judge.Hold{
		Key: share.Lock, Who: share.Holder, Exclusive: exclusive, Begin: judge.At(int64(time.Since(epoch))), End: judge.At(int64(till.Sub(epoch))),
	}
}

// Run returns when all clients are done. It checks that there were never too many, nor anybody beside a writer, and returns
// how many shares they had.
func (c Crowd) Run(ctx context.Context, tb testing.TB, client func(i int) Client) (shares int) {
	tb.Helper()
	var mu sync.Mutex
	var holds []judge.Hold
	var wg sync.WaitGroup
	for i := range c.Clients {
		wg.Go(func() {
			cl := client(i)
			for turn := range c.Turns {
				r := ask("client-"+strconv.Itoa(i), c.Slots)
				r.TTL = c.TTL
				if turn%2 == 0 {
					r.IdempotencyKey = fmt.Sprintf("%d-%d", i, turn)
				}
				if c.Writers && (i+turn)%3 == 0 {
					r.Slots, r.Exclusive = 0, true
				}
				share, err := cl.Acquire(ctx, r, bound)
				if err != nil {
					assert.True(tb, errors.Is(err, lease.ErrHeld) || errors.Is(err, lease.ErrBusy), "%v", err)
					continue
				}
				hold := Hold(share, r.Exclusive)
				if rand.N(4) > 0 {
					hold.End = judge.At(min(hold.End.Earliest, int64(time.Since(epoch))))
					_ = cl.Release(ctx, share.Claim)
				} // otherwise it ends with its lease
				if hold.Begin.Latest < hold.End.Earliest {
					mu.Lock()
					holds = append(holds, hold)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	require.NoError(tb, judge.Holds(holds, c.Slots))
	require.NotEmpty(tb, holds)
	return len(holds)
}

type local struct {
	*shared.Locker
	lease.Store
}

func (l local) Acquire(ctx context.Context, r shared.Request, wait time.Duration) (shared.Share, error) {
	return l.Locker.Acquire(ctx, r, wait)
}

func testCrowd(s *suite) {
	crowd := Crowd{Clients: 8, Turns: 6, Slots: 3, TTL: s.ttl, Writers: true}
	hasty := s.newLocker(s.ttl) // some lose the gate
	crowd.Run(s.Context(), s, func(int) Client { return local{hasty, s.store} })
}
