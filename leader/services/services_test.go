package services_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/leak"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/leadertest"
	"github.com/pglatch/pglatch/leader/services"
)

// A cast is what one node's services do, as lines in the order in which they happen.
type cast struct {
	mu    sync.Mutex
	lines []string
}

func (c *cast) note(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines = append(c.lines, fmt.Sprintf(format, args...))
}

// take returns what happened since the last call.
func (c *cast) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := c.lines
	c.lines = nil
	return lines
}

// Handle, with the other three, makes the cast a slog.Handler that notes the messages.
func (c *cast) Handle(_ context.Context, r slog.Record) error {
	c.note("log: %s", r.Message)
	return nil
}
func (c *cast) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }
func (c *cast) WithAttrs([]slog.Attr) slog.Handler               { return c }
func (c *cast) WithGroup(string) slog.Handler                    { return c }

// An actor is a service that notes its calls.
type actor struct {
	cast  *cast
	name  string
	ctx   context.Context // of Start
	start func(ctx context.Context) error
	stop  func(ctx context.Context) error
}

func (a *actor) Start(ctx context.Context) error {
	a.ctx = ctx
	a.cast.note("start %s", a.name)
	if a.start != nil {
		return a.start(ctx)
	}
	return nil
}

func (a *actor) Stop(ctx context.Context) error {
	a.cast.note("stop %s", a.name)
	if a.stop != nil {
		return a.stop(ctx)
	}
	return nil
}

// spec is an actor as a service; made, if not nil, sees it before it starts.
func (c *cast) spec(name string, made func(*actor)) services.Spec {
	return services.Spec{Name: name, New: func(context.Context) (services.Service, error) {
		c.note("new %s", name)
		a := &actor{cast: c, name: name}
		if made != nil {
			made(a)
		}
		return a, nil
	}}
}

// A stage is a node that runs services in a bubble.
type stage struct {
	*cast
	elector *leader.Elector
	backend *leadertest.Backend
	stop    context.CancelFunc
	errors  []error // that OnError got
	done    chan error
}

// perform runs services on a new node. Its log has only what the services log.
func perform(t *testing.T, election *leadertest.Election, config leader.Config, specs func(*cast) []services.Spec) *stage {
	t.Helper()
	s := &stage{cast: &cast{}, backend: election.Backend(), done: make(chan error, 1)}
	config.Name, config.Backend = "scheduler", s.backend
	config.Callbacks = leader.Callbacks{
		OnReleased:  func(leader.Term) { s.note("released") },
		OnLost:      func(leader.Term, error) { s.note("lost") },
		OnRecovered: func(leader.Term) { s.note("recovered") },
		OnError: func(err error) {
			s.note("error: %v", err)
			s.errors = append(s.errors, err)
		},
	}
	var err error
	s.elector, err = leader.New(config)
	require.NoError(t, err)
	group, err := services.New(s.elector, services.Config{Services: specs(s.cast), Logger: slog.New(s.cast)})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	go func() { s.done <- group.Run(ctx) }()
	synctest.Wait()
	return s
}

// end stops the node and waits for it.
func (s *stage) end(t *testing.T) {
	t.Helper()
	s.stop()
	require.NoError(t, <-s.done)
	assert.Equal(t, leader.Stopped, s.elector.State())
}

func two(c *cast) []services.Spec {
	return []services.Spec{c.spec("a", nil), c.spec("b", nil)}
}

var twoStarted = []string{"new a", "start a", "log: service started", "new b", "start b", "log: service started"}

var twoStopped = []string{"stop b", "log: service stopped", "stop a", "log: service stopped"}

func TestServicesStartInOrderOnTheLeaderAndStopInReverseBeforeTheRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		var held []bool
		s := perform(t, election, leader.Config{}, func(c *cast) []services.Spec {
			return []services.Spec{c.spec("a", func(a *actor) {
				a.stop = func(ctx context.Context) error {
					_, ok := election.Leader()
					held = append(held, ok, ctx.Err() == nil, a.ctx.Err() != nil)
					return nil
				}
			}), c.spec("b", nil)}
		})
		assert.Equal(t, twoStarted, s.take())
		s.end(t)
		assert.Equal(t, append(slices.Clone(twoStopped), "released"), s.take())
		assert.Equal(t, []bool{true, true, true}, held, "still the leader, Stop's ctx goes on, Start's has ended")
		_, ok := election.Leader()
		assert.False(t, ok)
	})
}

func TestAFollowerConstructsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		a := perform(t, election, leader.Config{}, two)
		b := perform(t, election, leader.Config{}, two)
		bubble.Sleep(time.Minute) // many attempts
		assert.Empty(t, b.take())
		assert.Equal(t, twoStarted, a.take())

		require.NoError(t, a.elector.StepDown(t.Context()))
		bubble.Sleep(time.Minute)
		assert.Equal(t, append(slices.Clone(twoStopped), "released"), a.take())
		assert.Equal(t, twoStarted, b.take())
		a.end(t)
		b.end(t)
	})
}

func TestTheContextOfStartLastsAsLongAsLeadership(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var service *actor
		s := perform(t, leadertest.NewElection(), leader.Config{}, func(c *cast) []services.Spec {
			spec := c.spec("a", func(a *actor) { service = a })
			spec.StartTimeout = time.Second
			return []services.Spec{spec}
		})
		bubble.Sleep(time.Hour)
		require.NoError(t, service.ctx.Err(), "StartTimeout bounds Start, not the service")
		assert.Equal(t, s.elector.Term(), leader.TermOfContext(service.ctx))
		s.end(t)
		assert.ErrorIs(t, service.ctx.Err(), context.Canceled)
	})
}

// It is the second of three.
func TestAServiceThatFailsToStartCostsLeadership(t *testing.T) {
	t.Parallel()
	boom := errors.New("no such table")
	for name, failure := range map[string]struct {
		spec func(c *cast) services.Spec
		as   error
		late time.Duration // until the failure shows
		then []string      // what happens to the service
	}{
		"by an error of Start": {
			spec: func(c *cast) services.Spec {
				return c.spec("b", func(a *actor) { a.start = func(context.Context) error { return boom } })
			},
			as: boom,
		},
		"by a panic": {
			spec: func(c *cast) services.Spec {
				return c.spec("b", func(a *actor) { a.start = func(context.Context) error { panic("boom") } })
			},
			as: leader.ErrPanic,
		},
		"by the end of a context of its own": {
			spec: func(c *cast) services.Spec {
				return c.spec("b", func(a *actor) {
					a.start = func(context.Context) error { return fmt.Errorf("dial: %w", context.Canceled) }
				})
			},
			as: context.Canceled,
		},
		"by the end of its goroutine, as FailNow does": {
			spec: func(c *cast) services.Spec {
				return c.spec("b", func(a *actor) { a.start = func(context.Context) error { runtime.Goexit(); return nil } })
			},
		},
		"by an error of New": {
			spec: func(c *cast) services.Spec {
				return services.Spec{Name: "b", New: func(context.Context) (services.Service, error) { return nil, boom }}
			},
			as: boom,
		},
		"because New returns nothing": {
			spec: func(c *cast) services.Spec {
				return services.Spec{Name: "b", New: func(context.Context) (services.Service, error) { return nil, nil }}
			},
		},
		"because it takes too long, and heeds its context": {
			spec: func(c *cast) services.Spec {
				return c.spec("b", func(a *actor) {
					a.start = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
				})
			},
			as: services.ErrTimeout, late: services.DefaultStartTimeout,
		},
		"because it takes too long, and then starts": {
			spec: func(c *cast) services.Spec {
				return c.spec("b", func(a *actor) {
					a.start = func(context.Context) error { bubble.Sleep(services.DefaultStartTimeout + time.Second); return nil }
				})
			},
			as: services.ErrTimeout, late: services.DefaultStartTimeout + time.Second,
			then: []string{"stop b", "log: service stopped"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				election := leadertest.NewElection()
				s := perform(t, election, leader.Config{}, func(c *cast) []services.Spec {
					return []services.Spec{c.spec("a", nil), failure.spec(c), c.spec("c", nil)}
				})
				other := perform(t, election, leader.Config{}, two)
				bubble.Sleep(failure.late)
				synctest.Wait()
				lines := s.take()
				assert.NotContains(t, lines, "new c")
				failed := slices.Index(lines, "log: a service failed to start: giving leadership up")
				require.GreaterOrEqual(t, failed, 0, lines)
				ended := slices.DeleteFunc(lines[failed+1:], func(l string) bool { return l[:6] == "error:" })
				assert.Equal(t, slices.Concat(failure.then, []string{"stop a", "log: service stopped", "released"}), ended)
				require.Len(t, s.errors, 1)
				service, ok := errors.AsType[*services.Error](s.errors[0])
				require.True(t, ok, s.errors[0])
				assert.Equal(t, "b", service.Service)
				if failure.as != nil {
					require.ErrorIs(t, service, failure.as)
				}
				assert.Equal(t, twoStarted, other.take(), "the other node leads")
				other.end(t)
				s.end(t)
			})
		})
	}
}

func TestANodeWhoseServiceFailedIsElectedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failures := 2
		s := perform(t, leadertest.NewElection(), leader.Config{}, func(c *cast) []services.Spec {
			return []services.Spec{c.spec("a", func(a *actor) {
				a.start = func(context.Context) error {
					if failures == 0 {
						return nil
					}
					failures--
					return errors.New("not yet")
				}
			})}
		})
		bubble.Sleep(time.Minute)
		again := []string{"new a", "start a"}
		failed := []string{"log: a service failed to start: giving leadership up", "error: leader: service a: start: not yet", "released"}
		assert.Equal(t, slices.Concat(again, failed, again, failed, again, []string{"log: service started"}), s.take())
		s.end(t)
	})
}

func TestAServiceThatDoesNotStopKeepsNoOtherFromItsStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		release := make(chan struct{})
		s := perform(t, election, leader.Config{DrainTimeout: time.Minute}, func(c *cast) []services.Spec {
			return []services.Spec{c.spec("a", nil), c.spec("b", func(a *actor) {
				a.stop = func(context.Context) error { <-release; return nil }
			}), c.spec("c", func(a *actor) {
				a.stop = func(context.Context) error { panic("boom") }
			})}
		})
		s.take()
		s.stop()
		synctest.Wait()
		assert.Equal(t, []string{"stop c", "log: a service failed to stop", "stop b"}, s.take())
		bubble.Sleep(services.DefaultStopTimeout)
		synctest.Wait()
		assert.Equal(t, []string{"log: a service failed to stop", "stop a", "log: service stopped"}, s.take())
		_, ok := election.Leader()
		assert.True(t, ok, "the service that goes on keeps leadership for DrainTimeout")
		bubble.Sleep(time.Minute)
		synctest.Wait()
		_, ok = election.Leader()
		assert.False(t, ok)
		select {
		case <-s.done:
			assert.Fail(t, "Run left a service behind")
		default:
		}
		close(release)
		s.end(t)
	})
}

func TestRecoveredLeadershipStartsTheServicesAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var made []*actor
		s := perform(t, leadertest.NewElection(), leader.Config{ReconnectGrace: 10 * time.Second}, func(c *cast) []services.Spec {
			return []services.Spec{c.spec("a", func(a *actor) { made = append(made, a) })}
		})
		s.take()
		s.backend.Kill()
		bubble.Sleep(10 * time.Second)
		lines := s.take()
		assert.Contains(t, lines, "recovered")
		assert.NotContains(t, lines, "lost")
		require.Len(t, made, 2, "new instances")
		require.Error(t, made[0].ctx.Err())
		require.NoError(t, made[1].ctx.Err())
		s.end(t)
	})
}

func TestLostLeadershipStopsTheServices(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		s := perform(t, election, leader.Config{}, two)
		s.take()
		election.Steal("somebody else", time.Minute)
		synctest.Wait()
		lines := s.take()
		for _, line := range twoStopped {
			assert.Contains(t, lines, line)
		}
		assert.NotContains(t, lines, "released")
		s.end(t)
	})
}

func TestLeadershipThatEndsDuringAStartIsNoFailureOfTheService(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := perform(t, leadertest.NewElection(), leader.Config{}, func(c *cast) []services.Spec {
			return []services.Spec{c.spec("a", nil), c.spec("b", func(a *actor) {
				a.start = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			})}
		})
		s.take()
		s.end(t)
		assert.Equal(t, []string{"stop a", "log: service stopped", "released"}, s.take())
	})
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	elector, err := leader.New(leader.Config{Name: "scheduler", Backend: leadertest.NewElection().Backend()})
	require.NoError(t, err)
	none := func(context.Context) (services.Service, error) { return nil, nil }
	for field, config := range map[string]services.Config{
		"Services":                 {},
		"StartTimeout":             {Services: []services.Spec{{Name: "a", New: none}}, StartTimeout: -1},
		"StopTimeout":              {Services: []services.Spec{{Name: "a", New: none}}, StopTimeout: -1},
		"Services[0].Name":         {Services: []services.Spec{{New: none}}},
		"Services[1].Name":         {Services: []services.Spec{{Name: "a", New: none}, {Name: "a", New: none}}},
		"Services[0].New":          {Services: []services.Spec{{Name: "a"}}},
		"Services[0].StartTimeout": {Services: []services.Spec{{Name: "a", New: none, StartTimeout: -1}}},
		"Services[0].StopTimeout":  {Services: []services.Spec{{Name: "a", New: none, StopTimeout: -1}}},
	} {
		_, err := services.New(elector, config)
		wrong, ok := errors.AsType[*leader.ConfigError](err)
		require.True(t, ok, "%s: %v", field, err)
		assert.Equal(t, field, wrong.Field)
		assert.NotEmpty(t, wrong.Remedy)
	}
	_, err = services.New(nil, services.Config{})
	require.ErrorContains(t, err, "Elector")
}

func TestMain(m *testing.M) { leak.Main(m) }
