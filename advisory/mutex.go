//go:build !pglatch_mutex

package advisory

import "sync"

// A mutex guards the lock table. With the build tag pglatch_mutex it measures how long it is held.
type mutex = sync.Mutex
