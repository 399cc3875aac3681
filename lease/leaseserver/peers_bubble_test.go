package leaseserver

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/lease"
)

// never is how often those look by themselves who depend on messages alone.
const never = -1

// soon is the time of some messages, and less than any pause.
const soon = 200 * time.Millisecond

func TestTheWaitersOfAServerThatWasSilentKeepTheirPlaces(t *testing.T) {
	for name, fault := range map[string]func([]string) (time.Duration, bool, error){
		"its messages were lost":       func([]string) (time.Duration, bool, error) { return time.Millisecond, false, nil },
		"its messages could not go":    func([]string) (time.Duration, bool, error) { return 2 * time.Second, false, errors.New("timeout") },
		"its messages came much later": func([]string) (time.Duration, bool, error) { return 4900 * time.Millisecond, true, nil },
	} {
		t.Run(name, func(t *testing.T) {
			inTown(t, 2, never, func(x *town) {
				held := x.acquire(0)
				x.waiter(1, "b1")
				x.waiter(0, "a1")
				x.ports[1].fault(fault, nil)
				x.settle(2 * silentAfter)
				x.ports[1].fault(nil, nil)
				x.settle(2 * silentAfter)
				x.waiter(1, "b2")
				x.waiter(0, "a2")
				x.release(0, held)
				assert.Equal(t, []string{"b1", "a1", "b2", "a2"}, x.order(soon))
			})
		})
	}
}

// Whoever is forgotten while it holds up nobody has lost nothing but time.
func TestAServerThatDiedHoldsUpNobodyForLong(t *testing.T) {
	inTown(t, 2, time.Second, func(x *town) {
		held := x.acquire(0)
		_, w := x.servers[1].queue.joinForTest("job")
		x.servers[1].queue.peers.waits(w)
		x.settle(soon)
		x.ports[1].fault(func([]string) (time.Duration, bool, error) { return time.Millisecond, false, nil }, func(string) bool { return true })
		for _, holder := range []string{"a1", "a2"} { // the second finds the place of the dead one still there
			x.waiter(0, holder)
			x.release(0, held)
			assert.Equal(t, []string{holder}, x.order(1500*time.Millisecond))
			held = x.acquire(0)
		}
		x.settle(2 * silentAfter)
		x.waiter(0, "a3")
		x.release(0, held)
		assert.Equal(t, []string{"a3"}, x.order(soon), "it is forgotten")
	})
}

func TestMessagesThatCouldNotBeSentAreSentLater(t *testing.T) {
	for name, carried := range map[string]bool{"they were not sent": false, "they were, and nobody knows": true} {
		t.Run(name, func(t *testing.T) {
			inTown(t, 2, never, func(x *town) {
				fails := func([]string) (time.Duration, bool, error) {
					return time.Millisecond, carried, errors.New("no connection")
				}
				held := x.acquire(0)
				x.ports[1].fault(fails, nil)
				x.waiter(1, "b1")
				x.ports[1].fault(nil, nil)
				x.settle(time.Second / 2)
				x.waiter(0, "a1")
				x.ports[0].fault(fails, nil)
				x.release(0, held)
				x.settle(10 * time.Millisecond)
				x.ports[0].fault(nil, nil)
				assert.Equal(t, []string{"b1", "a1"}, x.order(time.Second))
			})
		})
	}
}

func TestTheLineIsTheSameAfterALostConnection(t *testing.T) {
	for name, lost := range map[string][]int{"of the server that releases": {0}, "of another": {1}, "of all": {0, 1, 2}} {
		t.Run(name, func(t *testing.T) {
			inTown(t, 3, never, func(x *town) {
				held := x.acquire(0)
				for _, w := range []string{"1-1", "0-1", "2-1", "1-2", "2-2", "0-2"} {
					x.waiter(int(w[0]-'0'), w)
				}
				for _, server := range lost {
					x.ports[server].lose()
				}
				x.settle(4 * time.Second)
				x.release(0, held)
				assert.Equal(t, []string{"1-1", "0-1", "2-1", "1-2", "2-2", "0-2"}, x.order(soon))
			})
		})
	}
}

func TestAServerThatJoinsLearnsTheOrder(t *testing.T) {
	inTown(t, 2, never, func(x *town) {
		held := x.acquire(0)
		for _, w := range []string{"1-1", "0-1", "1-2", "0-2"} {
			x.waiter(int(w[0]-'0'), w)
		}
		x.add(x.ports[0].bus, never)
		x.settle(2 * time.Second)
		x.waiter(2, "2-1")
		x.release(2, held)
		assert.Equal(t, []string{"1-1", "0-1", "1-2", "0-2", "2-1"}, x.order(soon))
	})
}

func TestAServerThatDoesNotHearItselfListensAnew(t *testing.T) {
	inTown(t, 2, never, func(x *town) {
		held := x.acquire(0)
		x.waiter(0, "a1")
		x.waiter(1, "b1")
		x.ports[0].fault(nil, func(string) bool { return true })
		x.settle(time.Second)
		x.ports[0].mu.Lock()
		cut := x.ports[0].cut
		x.ports[0].mu.Unlock()
		x.settle(2 * silentAfter)
		x.ports[0].mu.Lock()
		assert.NotEqual(t, cut, x.ports[0].cut, "it listens on the same connection")
		x.ports[0].mu.Unlock()
		x.ports[0].fault(nil, nil)
		x.settle(3 * silentAfter)
		x.waiter(0, "a2")
		x.release(0, held)
		assert.Equal(t, []string{"a1", "b1", "a2"}, x.order(soon))
	})
}

func TestAWaiterIsNotToldByAServerThatEnds(t *testing.T) {
	inTown(t, 2, never, func(x *town) {
		held := x.acquire(0)
		_, w := x.servers[1].queue.joinForTest("job")
		x.servers[1].queue.peers.waits(w)
		x.settle(soon)
		x.waiter(0, "a1")
		x.stops[1]()
		x.settle(soon)
		x.release(0, held)
		assert.Equal(t, []string{"a1"}, x.order(soon), "the lock went to a server that has ended")
	})
}

func TestAReleaseIsToldTheNextServerIfTheFirstWaiterLeavesInThatMoment(t *testing.T) {
	inTown(t, 2, never, func(x *town) {
		held := x.acquire(0)
		lq, w := x.servers[1].queue.joinForTest("job")
		x.servers[1].queue.peers.waits(w)
		x.settle(soon)
		x.waiter(0, "a1")
		x.release(0, held)
		x.settle(soon) // the turn of w has come, and it leaves
		x.servers[1].queue.depart(lq, w, outcome{err: errWaited})
		assert.Equal(t, []string{"a1"}, x.order(soon))
	})
}

func TestAReleaseBeforeAWaiterElsewhereIsHeardOfIsToldToIt(t *testing.T) {
	inTown(t, 2, never, func(x *town) {
		held := x.acquire(0)
		x.ports[1].fault(func([]string) (time.Duration, bool, error) { return 500 * time.Millisecond, true, nil }, nil)
		x.waiter(1, "b1")
		x.release(0, held)
		assert.Equal(t, []string{"b1"}, x.order(time.Second))
	})
}

// Messages cost what those pay who wait.
func TestHowManyMessagesThereAre(t *testing.T) {
	inTown(t, 2, never, func(x *town) {
		count := func() (n int) {
			for _, p := range x.ports {
				p.mu.Lock()
				for _, m := range p.sent {
					if !strings.HasPrefix(m, "alive ") {
						n++
					}
				}
				p.sent = nil
				p.mu.Unlock()
			}
			return n
		}
		count()
		for range 100 {
			x.release(0, x.acquire(0))
		}
		x.settle(soon)
		assert.Zero(t, count(), "nobody waits")
		held := x.acquire(0)
		const waiters = 100
		for i := range waiters {
			x.waiter(i%2, "w")
		}
		x.release(0, held)
		assert.Len(t, x.order(10*time.Second), waiters)
		assert.LessOrEqual(t, count(), 3*waiters, "it waits, it leaves, and it is its turn")
	})
}

// A store that does a hand-over, and whose answer is lost.
type forgetful struct{ *port }

func (f forgetful) HandOver(ctx context.Context, c lease.Claim, next lease.AcquireRequest) (l lease.Lease, released, acquired error) {
	if err := f.port.Release(ctx, c); err != nil {
		return l, err, err
	}
	err := errors.New("no answer")
	return l, err, err
}

func TestAHandOverOfWhichNothingIsKnownLetsTheNextOneLook(t *testing.T) {
	for next, server := range map[string]int{"of this server": 0, "of another": 1} {
		t.Run(next, func(t *testing.T) {
			inTown(t, 2, never, func(x *town) {
				x.servers[0].queue.meter.hander = forgetful{x.ports[0]}
				held := x.acquire(0)
				x.wg.Go(func() {
					_, _, err := x.servers[0].queue.acquire(x.t.Context(), ask("a1"), time.Hour)
					assert.ErrorContains(t, err, "no answer")
				})
				x.settle(soon)
				x.waiter(server, "next")
				assert.Error(t, x.servers[0].queue.release(t.Context(), held.Claim))
				assert.Equal(t, []string{"next"}, x.order(soon))
			})
		})
	}
}

func TestAServerThatShutsDownPassesOnWhatIsReleasedThere(t *testing.T) {
	inTown(t, 2, never, func(x *town) {
		held := x.acquire(0)
		x.wg.Go(func() {
			_, _, err := x.servers[0].queue.acquire(x.t.Context(), ask("a1"), time.Hour)
			assert.ErrorIs(t, err, lease.ErrBusy)
		})
		x.settle(soon)
		x.waiter(1, "b1")
		assert.NoError(t, x.servers[0].Shutdown(t.Context()))
		x.settle(soon)
		x.release(0, held)
		assert.Equal(t, []string{"b1"}, x.order(soon))
	})
}
