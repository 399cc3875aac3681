package advisory

import (
	"time"
)

// Options change some calls of a Locker. See Locker.With.
type Options struct {
	// Wait bounds each request, in place of Config.Wait. 0 = Config.Wait; NoTimeout = until the
	// context ends; negative is an error of the call.
	Wait time.Duration

	// Shared takes the lock in shared mode: it excludes exclusive holders only.
	Shared bool

	// Label says what the lock is for, in Held and to the Tracer. "" = nothing.
	Label string
}

// TxOptions change a call of LockTx or LockSQLTx. The zero value takes exclusive locks, and waits.
type TxOptions struct {
	// Wait bounds the wait for all keys together. 0 = 15 s; NoTimeout = until the context ends;
	// negative is an error of the call.
	Wait time.Duration

	// Shared takes the locks in shared mode: they exclude exclusive holders only.
	Shared bool

	// Try does not wait. It takes all keys or none. If a key is held, the error is a *HeldError and
	// the transaction is unchanged. Several keys cost three round trips.
	Try bool
}
