package leased

import (
	"errors"

	"github.com/pglatch/pglatch/lease"
)

// permanent reports whether a retry cannot succeed: somebody must set up the store, grant rights on it, or
// change the request.
func permanent(err error) bool {
	return errors.Is(err, lease.ErrNotReady) || errors.Is(err, lease.ErrInvalid) || errors.Is(err, lease.ErrClosed)
}
