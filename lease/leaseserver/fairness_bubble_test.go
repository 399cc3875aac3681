package leaseserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A judge sees who comes, who gets the lock and who gives it back.
type judge struct {
	mu       sync.Mutex
	inside   int
	two      int                  // grants while another had the lock
	grants   int                  //
	waiting  map[string]time.Time // who waits since when
	free     time.Time            // since when it is
	idle     time.Duration        // the longest time in which it was free and somebody waited
	overtook time.Duration        // the longest by which somebody came after another, and was served before
}

func (j *judge) comes(who string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.waiting[who] = time.Now()
}

func (j *judge) gets(who string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	came := j.waiting[who]
	j.inside++
	j.grants++
	if j.inside > 1 {
		j.two++
	}
	first := came
	for _, since := range j.waiting {
		if since.Before(first) {
			first = since
		}
	}
	j.overtook = max(j.overtook, came.Sub(first))
	if first.Before(j.free) {
		first = j.free
	}
	j.idle = max(j.idle, time.Since(first))
	delete(j.waiting, who)
}

func (j *judge) gives() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.inside--
	j.free = time.Now()
}

// weather is what becomes of messages: chances of each thousand.
type weather struct {
	delay              time.Duration // at most
	lost, failed, deaf int           // of what is sent: lost, not sent or so, not heard by one of them
	cuts, silent       int           // each second, of a server: it loses its connection, says nothing for 6 s
}

func (w weather) over(x *town, r *dice) {
	chance := func(n int) bool { return r.IntN(1000) < n }
	for _, p := range x.ports {
		p.fault(func([]string) (delay time.Duration, carried bool, err error) {
			delay, carried = time.Millisecond+time.Duration(r.Int64N(int64(w.delay)+1)), !chance(w.lost)
			if chance(w.failed) {
				return delay, chance(500), errors.New("no answer")
			}
			return delay, carried, nil
		}, func(string) bool { return chance(w.deaf) })
	}
}

// A dice is random, for all goroutines.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (d *dice) IntN(n int) int { return int(d.Int64N(int64(n))) }

func (d *dice) Int64N(n int64) int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.Int64N(n)
}

// strike lets things happen to the servers, each second, until ctx ends.
func (w weather) strike(ctx context.Context, x *town, r *dice) {
	for sleep(ctx, time.Second) {
		for _, p := range x.ports {
			if r.IntN(1000) < w.cuts {
				p.lose()
			}
			if r.IntN(1000) < w.silent {
				p.mu.Lock()
				p.mute = time.Now().Add(6 * time.Second)
				p.mu.Unlock()
			}
		}
	}
}

// crowd lets clients acquire and release the lock at all servers for some time, and returns what
// a judge saw. Nobody comes any more then; those who wait have a minute to be served.
func crowd(x *town, w weather, r *dice, clients int, d time.Duration) *judge {
	j := &judge{waiting: make(map[string]time.Time)}
	w.over(x, r)
	ctx, stop := context.WithTimeout(x.t.Context(), d)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { w.strike(ctx, x, r) })
	end, giveUp := context.WithTimeout(x.t.Context(), d+time.Minute)
	defer giveUp()
	for i := range clients {
		wg.Go(func() {
			server := x.servers[i%len(x.servers)]
			for n := 0; sleep(ctx, time.Duration(r.IntN(40))*time.Millisecond); n++ {
				who := fmt.Sprint(i, "-", n)
				j.comes(who)
				l, _, err := server.queue.acquire(end, ask(who), time.Hour)
				if err != nil {
					return // the judge knows that it waits
				}
				j.gets(who)
				sleep(end, time.Duration(5+r.IntN(20))*time.Millisecond)
				j.gives()
				assert.NoError(x.t, server.queue.release(context.Background(), l.Claim))
			}
		})
	}
	wg.Wait()
	return j
}

func simulate(t *testing.T, servers, clients int, poll time.Duration, w weather, check func(*testing.T, *judge)) {
	t.Helper()
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("%d servers, %d clients, seed %d", servers, clients, seed), func(t *testing.T) {
			inTown(t, servers, poll, func(x *town) {
				j := crowd(x, w, &dice{r: rand.New(rand.NewPCG(seed, 1))}, clients, simulated(t))
				t.Logf("%d grants, idle for %v, overtaken by %v, %d wait still", j.grants, j.idle, j.overtook, len(j.waiting))
				require.Zero(t, j.two, "two had the lock at a time")
				check(t, j)
			})
		})
	}
}

// simulated is how long a simulation lasts, in its own time.
func simulated(t *testing.T) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(cmp.Or(os.Getenv("PGLATCH_SIMULATED"), "40s"))
	require.NoError(t, err)
	return d
}

const poll = time.Second

// Who asks while the lock is free, on the way from one server to the other, can come between.
func TestWithoutFaultsEverybodyIsServedAtOnceAndNobodyOvertakenTwice(t *testing.T) {
	for servers, clients := range map[int]int{2: 6, 3: 9, 4: 4} {
		simulate(t, servers, clients, never, weather{}, func(t *testing.T, j *judge) {
			t.Helper()
			assert.Empty(t, j.waiting)
			assert.LessOrEqual(t, j.idle, 10*time.Millisecond)
			assert.LessOrEqual(t, j.overtook, time.Second)
		})
	}
}

// stormy loses one message of ten, and servers from time to time.
var stormy = weather{delay: 100 * time.Millisecond, lost: 50, failed: 30, deaf: 20, cuts: 20, silent: 10}

func TestWhenMessagesAreLostALockIsIdleForThePollIntervalAndNobodyIsOvertakenForLong(t *testing.T) {
	for _, servers := range []int{2, 3} {
		simulate(t, servers, 3*servers, poll, stormy, func(t *testing.T, j *judge) {
			t.Helper()
			assert.Empty(t, j.waiting)
			assert.LessOrEqual(t, j.idle, poll*3/2+50*time.Millisecond)
			assert.LessOrEqual(t, j.overtook, 20*time.Second)
		})
	}
}

// The control: without the look, a message that is lost is the end.
func TestWhenMessagesAreLostAndNobodyLooksSomebodyStarves(t *testing.T) {
	simulate(t, 2, 6, never, stormy, func(t *testing.T, j *judge) {
		t.Helper()
		assert.NotEmpty(t, j.waiting)
	})
}
