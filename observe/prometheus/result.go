package prometheus

import (
	"context"
	"errors"

	"github.com/pglatch/pglatch/advisory"
)

// A result is the outcome of a request for a lock.
type result string

// The results; the lock server's metrics also use the first three.
const (
	success     result = "success"
	held        result = "held" // of a try
	unavailable result = "unavailable"
	timeout     result = "timeout"
	canceled    result = "canceled"
	reentrant   result = "reentrant"
	deadlock    result = "deadlock"
	exhausted   result = "pool_exhausted"
	tableFull   result = "table_full"
	refused     result = "refused"
	closed      result = "closed"
	failed      result = "error"
)

var results = []result{success, held, unavailable, timeout, canceled, reentrant, deadlock, exhausted, tableFull, refused, closed, failed}

func resultOf(err error) result {
	if err == nil {
		return success
	}
	for _, c := range []struct { // the first match counts: a timeout matches held, too
		condition error
		result    result
	}{
		{advisory.ErrTimeout, timeout},
		{advisory.ErrReentrant, reentrant},
		{advisory.ErrDeadlock, deadlock},
		{advisory.ErrPoolExhausted, exhausted},
		{advisory.ErrLockTableFull, tableFull},
		{advisory.ErrRefused, refused},
		{advisory.ErrClosed, closed},
		{advisory.ErrUnavailable, unavailable},
		{advisory.ErrHeld, held},
		{context.Canceled, canceled},
		{context.DeadlineExceeded, timeout},
	} {
		if errors.Is(err, c.condition) {
			return c.result
		}
	}
	return failed
}
