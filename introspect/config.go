package introspect

// A Config says what a process answers. The zero value answers questions and refuses requests.
// Lockers, elections and shards of one process that use one database share a connection, and each
// answers for itself.
type Config struct {
	// Off: no answers, no connection for them.
	Off bool

	// Readers are further roles whose members may see entities and labels. Members of the process' own role and of
	// pg_read_all_stats always may, unless HideEntities is set. All other roles receive "order/…" for "order/42". A role
	// that does not exist has no members. nil = no further roles.
	Readers []string

	// HideEntities leaves entities and labels out of every answer.
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
