// Package interop has the advisory-lock keys of other tools, so that a Locker of pglatch and
// such a tool exclude each other while a team moves from one to the other.
//
//	// Waits for a "rake db:migrate" that runs, and lets none begin.
//	err := locker.Do(ctx, interop.Rails("shop_production"), migrate)
//
// Each function is pure, and computes what the tool computes, from the tool's source; test
// vectors that other programs made are frozen in testdata. A tool can change its number in a
// new version: docs/interop.md names the versions that were looked at, what each tool does
// while it waits, and how to change from its key to one of your own without a moment in which
// two run. Advisory locks are per database: both sides must be connected to the same one.
//
// Where a tool takes the number from its user, no function is needed: pg_advisory_lock(42) is
// namespace.SingleRaw(42), and pg_advisory_lock(1, 42) is namespace.Pair(1, 42).
//
// A negative key (those of PostgresMigrations, and half of those that are hashes of 64 bits) can be
// that of a leader election of pglatch, with a probability of 2⁻⁶³ for each pair of the two.
package interop
