package leader

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// The defaults of a ServicesConfig.
const (
	DefaultStartTimeout = 30 * time.Second
	DefaultStopTimeout  = 10 * time.Second
)

// A ServicesConfig lists services.
type ServicesConfig struct {
	// Services in the order in which they start. At least one.
	Services []ServiceSpec

	// StartTimeout is how long a service may take to start. 0 = 30 s.
	StartTimeout time.Duration

	// StopTimeout is how long a service may take to stop. 0 = 10 s. The Elector's
	// DrainTimeout bounds the stop of all of them together.
	StopTimeout time.Duration

	// Logger gets what starts (Info), and what fails to start or to stop (Warn). nil =
	// that of the Elector.
	Logger *slog.Logger
}

// Services run while an Elector's node leads.
type Services struct {
	elector *Elector
	specs   []ServiceSpec
	log     *slog.Logger
}

// NewServices validates a list of services for an Elector. Nothing happens before
// Run.
func NewServices(e *Elector, config ServicesConfig) (*Services, error) {
	config.StartTimeout = cmp.Or(config.StartTimeout, DefaultStartTimeout)
	config.StopTimeout = cmp.Or(config.StopTimeout, DefaultStopTimeout)
	switch {
	case e == nil:
		return nil, wrong("Elector", nil, "pass one")
	case len(config.Services) == 0:
		return nil, wrong("Services", "empty", "list one at least")
	case config.StartTimeout < 0:
		return nil, wrong("StartTimeout", config.StartTimeout, "use a positive duration, or 0 for 30s")
	case config.StopTimeout < 0:
		return nil, wrong("StopTimeout", config.StopTimeout, "use a positive duration, or 0 for 10s")
	}
	specs := slices.Clone(config.Services)
	names := map[string]bool{}
	for i := range specs {
		s := &specs[i]
		s.StartTimeout = cmp.Or(s.StartTimeout, config.StartTimeout)
		s.StopTimeout = cmp.Or(s.StopTimeout, config.StopTimeout)
		field := func(name string) string { return fmt.Sprintf("Services[%d].%s", i, name) }
		switch {
		case s.Name == "" || names[s.Name]:
			return nil, wrong(field("Name"), fmt.Sprintf("%q", s.Name), "give each service a name of its own")
		case s.New == nil:
			return nil, wrong(field("New"), nil, "pass the function that makes "+s.Name)
		case s.StartTimeout < 0:
			return nil, wrong(field("StartTimeout"), s.StartTimeout, "use a positive duration, or 0 for that of all")
		case s.StopTimeout < 0:
			return nil, wrong(field("StopTimeout"), s.StopTimeout, "use a positive duration, or 0 for that of all")
		}
		names[s.Name] = true
	}
	log := labeled(cmp.Or(config.Logger, e.config.Logger), e.config)
	return &Services{elector: e, specs: specs, log: log}, nil
}

// Run runs the services while the node leads, with Elector.Run: it returns when
// ctx ends or the Elector stops, and starts the Elector if that was not done. Each
// time that leadership comes, recovered too, the services are made and started, one
// after the other in their order. When it ends they are stopped in reverse order,
// each within its time; one that takes longer does not keep the next from its stop.
// Leadership is released only when all have stopped, or after the Elector's
// DrainTimeout.
//
// A service that fails to start (by an error, a panic, or its time) costs the
// leadership: what has started is stopped in reverse and others may lead; the reason is
// logged and reported to OnError as a *ServiceError. The node takes part again as
// after StepDown. A Start or Stop that does not return counts as work that goes
// on: see Config.OnDrainExceeded. A Start that succeeds too late is followed by its
// Stop.
func (s *Services) Run(ctx context.Context) error {
	defer s.logFollower()()
	return s.elector.Run(ctx, s.serve)
}

// logFollower logs, once in each time as a follower, that nothing is started.
func (s *Services) logFollower() (unregister func()) {
	told := false // used by the lifecycle goroutine only
	again := func() { told = false }
	undo := []func(){
		s.elector.OnAcquired(func(Term) { again() }),
		s.elector.OnStopped(func(error) { again() }),
		s.elector.OnAcquireFailed(func(err error) {
			if err == nil && !told {
				told = true
				s.log.Info("not leader, skipping scheduler startup")
			}
		}),
	}
	return func() {
		for _, unregister := range undo {
			unregister()
		}
	}
}

// serve is the work of one leadership.
func (s *Services) serve(ctx context.Context) error {
	s.log.Info("acquired leadership, starting schedulers", slog.String("term", TermOfContext(ctx).String()))
	var calls sync.WaitGroup // of services, also those that nobody waits for any more
	defer calls.Wait()
	var begun []*posting
	for _, spec := range s.specs {
		if ctx.Err() != nil {
			break
		}
		p := &posting{ServiceSpec: spec, calls: &calls, started: make(chan struct{})}
		begun = append(begun, p)
		if err := p.start(ctx); err != nil {
			if ctx.Err() == nil {
				s.log.Warn("a service failed to start: giving leadership up", slog.String("service", p.Name), slog.Any("error", err))
				s.elector.resign(&ServiceError{p.Name, err})
			}
			break
		}
		s.log.Info("service started", slog.String("service", p.Name))
	}
	<-ctx.Done()
	for _, p := range slices.Backward(begun) {
		s.stop(ctx, p)
	}
	return nil
}

// stop stops a service, or waits for the end of an attempt to start it.
func (s *Services) stop(ctx context.Context, p *posting) {
	log := s.log.With(slog.String("service", p.Name))
	if err := p.stop(ctx); err != nil {
		log.Warn("a service failed to stop", slog.Any("error", err))
	} else if p.err == nil {
		log.Info("service stopped")
	}
}

// resign is StepDown for a reason, as a request only: work may call it.
func (e *Elector) resign(reason error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.life != nil && e.life.reign != nil {
		e.life.reign.stepDown(reason)
	}
}
