package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

// ErrDenied means that the cluster does not know the user, or denies it access to the store's
// keys. Nothing was done. The error also matches lease.ErrNotReady.
var ErrDenied = errors.New("etcd denies access")

var (
	errClosed    = fmt.Errorf("lease/etcd: %w", lease.ErrClosed)
	errNoAnswer  = errors.New("no answer of a majority of the cluster in time")
	errContended = errors.New("others change the name all the time")
	errEnded     = errors.New("etcd has ended the lease again, while its leader changed")
	errReplaced  = errors.New("etcd's leader was replaced meanwhile")
	errHistory   = errors.New("the cluster was replaced meanwhile")
	errNoSpace   = errors.New("etcd has no space left: compact and defragment it, and disarm the alarm")
	deniedByEtcd = []error{rpctypes.ErrPermissionDenied, rpctypes.ErrAuthFailed, rpctypes.ErrUserEmpty, rpctypes.ErrInvalidAuthToken, rpctypes.ErrInvalidAuthMgmt}
)

// busyRetry is how long to wait at most before a cluster without a leader is worth another try.
const busyRetry = 500 * time.Millisecond

func busy(cause error) error {
	return &lease.BusyError{Retry: pause.AtMost(busyRetry), Cause: cause}
}

func anyOf(err error, all []error) bool {
	for _, e := range all {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// denied returns the error for a request that the cluster refuses this user; nil if err is
// something else.
func denied(err error) error {
	if !anyOf(err, deniedByEtcd) {
		return nil
	}
	return fmt.Errorf("lease/etcd: %w: %w: grant the user's role readwrite on the store's prefix: %w", lease.ErrNotReady, ErrDenied, err)
}

// undone converts the error of a call before any change of a name.
func undone(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if e := denied(err); e != nil {
		return e
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(err, rpctypes.ErrNoSpace):
		return busy(fmt.Errorf("%w (%w)", errNoSpace, err))
	case errors.Is(cause, errNoAnswer) || cause == nil:
		return busy(errors.Join(cause, err))
	default:
		return fmt.Errorf("lease/etcd: %w", cause)
	}
}

// failed converts the error of a transaction. The outcome is unknown, except if etcd refuses the
// transaction before it begins. The answer that there is no space is not such a refusal: etcd
// checks again while it runs the transaction, and can complete the transaction and still give
// that answer.
func failed(ctx context.Context, err error) error {
	if e := denied(err); e != nil {
		return e
	}
	if errors.Is(err, rpctypes.ErrTooManyRequests) {
		return busy(err)
	}
	return doubtful(ctx, err)
}

// withoutSpace converts the error of a change for which etcd had no space. If the name is
// unchanged, the change was not done.
func (s *Store) withoutSpace(ctx context.Context, c *change, err error) error {
	if v, failure := s.look(ctx, c.row.Name); failure != nil || v.revision != c.v.revision {
		return doubtful(ctx, err)
	}
	s.retire(c.fresh...)
	return undone(ctx, err)
}

// doubtful hides the errors that err matches, because an error of package lease says that nothing
// was done.
func doubtful(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("lease/etcd: whether it was done is unknown: %w (%v)", cause, err) //nolint:errorlint // as said
	}
	return fmt.Errorf("lease/etcd: whether it was done is unknown: %v", err) //nolint:errorlint // as said
}

// isRefusal reports whether an error is an answer to an acquire.
func isRefusal(err error) bool { return errors.Is(err, lease.ErrHeld) }

// refusal adds how long the name is kept, which only the cluster knows.
func (s *Store) refusal(ctx context.Context, v *view, err error) error {
	e, ok := errors.AsType[*lease.HeldError](err)
	if !ok {
		return err
	}
	in, failure := s.availableIn(ctx, v)
	if failure != nil {
		return failure
	}
	if in > 0 { // else it became free this moment
		e.Remaining, e.Retry = in, rules.Retry(in)
	}
	return e
}
