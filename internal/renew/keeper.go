package renew

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/boottime"
)

var (
	// ErrExpired is the reason of a loss that nobody reported.
	ErrExpired = errors.New("no renewal succeeded in time")
	// ErrEnded is the reason of a loss that a Keeper's Gone reported.
	ErrEnded = errors.New("the right has ended")
)

// A Keeper renews a right until it is lost. A is the answer to a renewal. Use a Keeper for one
// Run, and then Close it.
type Keeper[A any] struct {
	Rules Rules

	// Left returns how long the right can be trusted.
	Left func() time.Duration
	// Renew makes one renewal, in a goroutine of its own. There is one at a time.
	Renew func(ctx context.Context) A
	// Judge records an answer to a renewal that began at sent: Kept, or the reason why it is Failed
	// or Gone. If it returns Kept, it has moved the deadline. Gone without a reason means that the
	// answer came too late.
	Judge func(answer A, sent boottime.Moment) (Event, error)

	// Gone is closed when the right is known to have ended; nil = never.
	Gone <-chan struct{}
	// Others is called when the wait for the next renewal begins. It may shorten the wait, and
	// returns a channel for an answer that comes without a request; nil = none comes. A nil Others
	// does nothing.
	Others func(wait time.Duration) (shorter time.Duration, answers <-chan A)

	state   State
	answers chan A             // nil = no renewal is under way
	cancel  context.CancelFunc // cancels it
}

// Judge is a Keeper's Judge for a right that ends at a deadline. A renewal that ended without an error
// moves the deadline to its new end. lost is the error of a right that another holder has.
func Judge(err error, deadline *boottime.Deadline, end boottime.Moment, lost error) (Event, error) {
	switch {
	case err == nil && deadline.Extend(end):
		return Kept, nil
	case err == nil, errors.Is(err, lost):
		return Gone, err
	}
	return Failed, err
}

// Failures returns how many renewals have failed in a row. It is for Judge and Others.
func (k *Keeper[A]) Failures() int { return k.state.failures }

// Run renews the right, which was acquired or renewed by a request that was sent at sent. It
// returns nil when ctx ends. Otherwise it returns the reason why the right is lost, at its
// deadline at the latest, even if a renewal hangs.
func (k *Keeper[A]) Run(ctx context.Context, sent boottime.Moment) error {
	var (
		last   error // of the last renewal
		others <-chan A
	)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for e := Begun; ; {
		var step Step
		switch k.state, step = k.Rules.Next(k.state, e, time.Since(sent.Mono), k.Left()); step.Action {
		case Report, Nothing:
			return k.reason(e, last)
		case Ask:
			sent, others = boottime.Present(), nil
			k.ask(ctx, step.Within)
		case Wait:
			if e != Due && k.Others != nil {
				step.Wait, others = k.Others(step.Wait)
			}
		}
		timer.Reset(step.Wait)
		var answer A
		select {
		case <-ctx.Done():
			return nil
		case <-k.Gone:
			return ErrEnded
		case <-timer.C:
			e = Due
			continue
		case answer = <-k.answers:
			k.cancel()
			k.answers = nil
		case answer = <-others:
			sent = boottime.Present()
		}
		if ctx.Err() != nil {
			return nil // it may be an answer to that
		}
		var err error
		if e, err = k.Judge(answer, sent); e == Gone && err == nil {
			err = expired(last)
		}
		if e == Kept || err != nil {
			last = err
		}
	}
}

// ask begins a renewal.
func (k *Keeper[A]) ask(ctx context.Context, within time.Duration) {
	answers := make(chan A, 1)
	k.answers = answers
	ctx, k.cancel = context.WithTimeout(ctx, within)
	go func() { answers <- k.Renew(ctx) }()
}

// Close cancels the renewal that is under way, if any, and waits for its end.
func (k *Keeper[A]) Close() { _, _ = k.Cancel() }

// Cancel is Close, and returns the answer; false if no renewal is under way.
func (k *Keeper[A]) Cancel() (answer A, ok bool) {
	if k.answers == nil {
		return answer, false
	}
	k.cancel()
	answer = <-k.answers
	k.answers = nil
	return answer, true
}

// reason returns why the right is lost, after an event and the last renewal's error.
func (k *Keeper[A]) reason(e Event, last error) error {
	switch {
	case e == Gone:
		return last
	case e == Failed && k.Rules.Failures > 0 && k.state.failures >= k.Rules.Failures:
		return fmt.Errorf("%d renewals failed in a row: %w", k.state.failures, last)
	}
	return expired(last)
}

// expired returns ErrExpired with the error of the last renewal, if it failed.
func expired(last error) error {
	if last == nil {
		return ErrExpired
	}
	return fmt.Errorf("%w: %w", ErrExpired, last)
}
