package prove

// The names of the proofs.
const (
	oneServer    = "one server"
	primary      = "primary"
	pooler       = "pooler"
	exclusion    = "exclusion"
	sharedMode   = "shared mode"
	lockTable    = "lock table view"
	queue        = "queue order"
	unlock       = "unlock"
	endOfSession = "end of session"
	terminated   = "terminated session"
	txLocks      = "transaction locks"
	txRollback   = "rollback"
	txSavepoint  = "savepoint"
	lease        = "session lease"
	canceling    = "cancel"
	cancelAim    = "cancel aim"
	notify       = "notify"
	clock        = "clock"
	samePID      = "stable pid"
)
