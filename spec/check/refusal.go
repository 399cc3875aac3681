package check

import (
	"errors"
	"fmt"

	"github.com/pglatch/pglatch/internal/test/trace"
)

// ErrRefused is the error of a run that the model does not allow.
var ErrRefused = errors.New("the run is refused")

// A RefusalError says which event of a run the model does not allow.
type RefusalError struct {
	Index  int // of the event in the run
	Event  trace.Event
	Reason string
}

func (r *RefusalError) Error() string {
	return fmt.Sprintf("%v: event %d, %s of %s (%s, term %d): %s", ErrRefused, r.Index, r.Event.Kind, r.Event.Process, r.Event.Key, r.Event.Term, r.Reason)
}

// Is reports whether target is ErrRefused.
func (*RefusalError) Is(target error) bool { return target == ErrRefused }

func refuse(run []trace.Event, index int, format string, args ...any) error {
	return &RefusalError{index, run[index], fmt.Sprintf(format, args...)}
}

// A Check replays the events of a run, in the order of the shared clock. Its error is a *RefusalError, if the run is not legal.
type Check func(run []trace.Event) error

// Checks are all checks, by the name that a run's first event has.
var Checks = map[string]Check{"leases": Leases, "elections": Elections, "shards": Shards, "locks": Locks, "incident": Incident, "turns": Turns}

// Named returns the check of a run by its first event, and the rest of the run.
func Named(run []trace.Event) (Check, []trace.Event, error) {
	if len(run) == 0 || run[0].Kind != trace.Run {
		return nil, nil, errors.New("the first event does not say what is replayed")
	}
	c := Checks[run[0].Key]
	if c == nil {
		return nil, nil, fmt.Errorf("there is no check for %q", run[0].Key)
	}
	return c, run[1:], nil
}
