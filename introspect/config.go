package introspect

// A Config says what a process answers. The zero value answers questions and refuses requests.
// Lockers and elections of one process that use one database share a connection, and each
// answers for itself.
type Config struct {
	// Off: no answers, no connection for them.
	Off bool

	// HideEntities leaves entities and labels out: "order/42" is answered as "order/…".
	HideEntities bool

	// Service and Version name the program. "" = what the build says of the main module:
	// its path's last element and its version.
	Service, Version string

	// AllowAsk lets others ask for a lock's release: advisory.Lock.Asked reports it. The
	// lock stays held until the program releases it.
	AllowAsk bool

	// AllowDump lets others have the stack of the goroutine that took a lock written to
	// the Logger. With it, each acquisition notes its goroutine, which costs about a microsecond.
	AllowDump bool

	// AllowResign lets others have an election resigned: the leader's work is drained, then
	// another candidate leads.
	AllowResign bool
}
