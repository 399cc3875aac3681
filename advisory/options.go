package advisory

import (
	"time"
)

// Options apply to the calls of one copy of a Locker. See Locker.With.
type Options struct {
	// Wait bounds each request, in place of Config.Wait. 0 = Config.Wait; NoTimeout = until the
	// context ends; a negative value is an error.
	Wait time.Duration

	// Shared makes the lock a shared one: it conflicts only with exclusive locks.
	Shared bool

	// Label describes what the lock is for. Held and the Tracer show it. "" = no description.
	Label string
}

// TxOptions apply to one call of LockTx or LockSQLTx. With the zero value, the call takes exclusive
// locks, and waits.
type TxOptions struct {
	// Wait bounds the wait for all keys together. 0 = 15 s; NoTimeout = until the context ends;
	// a negative value is an error.
	Wait time.Duration

	// Shared makes the locks shared ones: they conflict only with exclusive locks.
	Shared bool

	// Try makes the call take all keys or none, without waiting. If a key is held, the error is a
	// *HeldError and the transaction is unchanged. Several keys cost three round trips.
	Try bool
}
