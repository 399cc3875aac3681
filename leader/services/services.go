package services

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/pglatch/pglatch/leader"
)

// The defaults of a Config.
const (
	DefaultStartTimeout = 30 * time.Second
	DefaultStopTimeout  = 10 * time.Second
)

// A Config lists the services of a Group.
type Config struct {
	// Services lists the services in the order in which they start. At least one is required.
	Services []Spec

	// StartTimeout is how long a service may take to start. 0 = 30 s.
	StartTimeout time.Duration

	// StopTimeout is how long a service may take to stop. 0 = 10 s. The Elector's DrainTimeout bounds the
	// stop of all services together.
	StopTimeout time.Duration

	// Logger receives the starts of services (Info), and failures to start or stop (Warn). nil = the
	// Elector's.
	Logger *slog.Logger
}

// A Group is a list of services that run while an Elector's node leads.
type Group struct {
	elector *leader.Elector
	specs   []Spec
	log     *slog.Logger
}

// New validates a list of services for an Elector. It starts nothing; Run does.
func New(e *leader.Elector, config Config) (*Group, error) {
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
	return &Group{elector: e, specs: specs, log: e.Logger(config.Logger)}, nil
}

func wrong(field string, value any, remedy string) error {
	return &leader.ConfigError{Field: field, Value: value, Remedy: remedy}
}

// Run runs the services while the node leads, with Elector.Run. It returns when ctx ends or the Elector
// stops, and starts the Elector if it is not started.
//
// Each time leadership begins or is recovered, Run creates and starts the services one after the other, in
// their order. When leadership ends, it stops them in reverse order, each within its time. A service that
// takes longer does not delay the stop of the next. Leadership is released only when all have stopped, or
// after the Elector's DrainTimeout.
//
// If a service fails to start (by an error, a panic, or its timeout), the node gives up leadership. The started
// services stop in reverse order, and others may lead. The reason is logged and reported to OnError as an
// *Error. The node then takes part again, as it does after StepDown.
//
// A Start or Stop that does not return counts as work that continues: see leader.Config.KeepUntilDrained.
// If a Start succeeds too late, Run calls its Stop.
func (s *Group) Run(ctx context.Context) error {
	return s.elector.Run(ctx, s.serve)
}

// serve is the work of one leadership.
func (s *Group) serve(ctx context.Context) error {
	var calls sync.WaitGroup // calls of services, including those that nobody waits for any more
	defer calls.Wait()
	var begun []*instance
	for _, spec := range s.specs {
		if ctx.Err() != nil {
			break
		}
		p := &instance{Spec: spec, calls: &calls, started: make(chan struct{})}
		begun = append(begun, p)
		if err := p.start(ctx); err != nil {
			if ctx.Err() == nil {
				s.log.Warn("a service failed to start: giving leadership up", slog.String("service", p.Name), slog.Any("error", err))
				s.elector.Resign(&Error{p.Name, err})
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
func (s *Group) stop(ctx context.Context, p *instance) {
	log := s.log.With(slog.String("service", p.Name))
	if err := p.stop(ctx); err != nil {
		log.Warn("a service failed to stop", slog.Any("error", err))
	} else if p.err == nil {
		log.Info("service stopped")
	}
}
