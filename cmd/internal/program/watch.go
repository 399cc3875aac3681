package program

import (
	"context"
	"time"
)

// A Watch is the loop of a command that looks again and again until its context ends.
type Watch[T any] struct {
	Interval time.Duration
	Look     func(context.Context) (T, error)
	Failed   func(error) // receives errors of Look, except the first look's, which end the watch
	Show     func(T) error
}

// Run looks at once, and then in each interval. It returns nil when ctx ends, and shows nothing after that.
func (w Watch[T]) Run(ctx context.Context) error {
	tick := time.NewTicker(w.Interval)
	defer tick.Stop()
	for first := true; ; first = false {
		seen, err := w.Look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		case err != nil:
			w.Failed(err)
		default:
			if err := w.Show(seen); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
