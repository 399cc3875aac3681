package introspect

// A Config says what a process answers. The zero value answers questions and rejects requests.
// The Lockers, elections and shards of one process that use the same database share a connection
// for answers, and each answers for itself.
type Config struct {
	// Off: the process does not answer, and opens no connection for answers.
	Off bool

	// Readers are further roles whose members may see entities and labels. Members of the process' own role and of
	// pg_read_all_stats always may, unless HideEntities is set. All other roles receive "order/…" for "order/42". A role
	// that does not exist has no members. nil = no further roles.
	Readers []string

	// HideEntities leaves entities and labels out of every answer.
	HideEntities bool

	// Service and Version name the program. "" = the last element of the main module's path, and
	// its version, from the build information. Lockers of one process can have different services: each
	// lock, wait, election and group of shards is shown under its own. One without a Service is shown under
	// that of the process, which is the first that was given.
	Service, Version string

	// AllowAsk lets others request the release of a lock. advisory.Lock.Asked reports the request.
	// The lock stays held until the program releases it.
	AllowAsk bool

	// AllowDump lets others request the stack of the goroutine that took a lock. The process writes
	// it to the Logger. With AllowDump, each acquisition notes its goroutine, which costs about a
	// microsecond.
	AllowDump bool

	// AllowResign lets others make a leader resign: its work is drained, then another candidate
	// leads.
	AllowResign bool
}
