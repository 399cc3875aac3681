package sharetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/shared"
)

// A Stay is the time in which a client could rely on a share.
type Stay struct {
	Exclusive  bool
	Slot       int
	Fence      uint64
	From, Till time.Time
}

// Check returns what is wrong with stays: more than slots at once, or a second stay during an
// exclusive one. It also returns the largest number of simultaneous stays.
func Check(stays []Stay, slots int) (most int, wrong error) {
	type event struct {
		at    time.Time
		begin bool
		stay  *Stay
	}
	var events []event
	for i := range stays {
		if stays[i].From.Before(stays[i].Till) {
			events = append(events, event{stays[i].From, true, &stays[i]}, event{stays[i].Till, false, &stays[i]})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return cmp.Compare(map[bool]int{true: 1}[a.begin], map[bool]int{true: 1}[b.begin]) // ends first
	})
	inside := map[*Stay]bool{}
	for _, e := range events {
		if !e.begin {
			delete(inside, e.stay)
			continue
		}
		inside[e.stay] = true
		most = max(most, len(inside))
		for other := range inside {
			if other != e.stay && (other.Exclusive || e.stay.Exclusive) {
				wrong = cmp.Or(wrong, fmt.Errorf("%+v is beside %+v", *e.stay, *other))
			}
		}
		if len(inside) > slots {
			wrong = cmp.Or(wrong, fmt.Errorf("%d are inside, of %d", len(inside), slots))
		}
	}
	return most, wrong
}

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

// Run returns when all clients are done.
func (c Crowd) Run(ctx context.Context, tb testing.TB, client func(i int) Client) []Stay {
	tb.Helper()
	var mu sync.Mutex
	var stays []Stay
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
				till := lease.Trust(share.Asked, share.Lease, 0).Time()
				stay := Stay{Exclusive: r.Exclusive, Slot: share.Slot, Fence: share.Fence, From: time.Now(), Till: till}
				if rand.N(4) > 0 {
					if now := time.Now(); now.Before(till) {
						stay.Till = now
					}
					_ = cl.Release(ctx, share.Claim)
				} // otherwise the stay ends with its lease
				mu.Lock()
				stays = append(stays, stay)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return stays
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
	stays := crowd.Run(s.Context(), s, func(int) Client { return local{hasty, s.store} })
	_, wrong := Check(stays, crowd.Slots)
	require.NoError(s, wrong)
	assert.NotEmpty(s, stays)
}
