// Package interop has the advisory-lock keys of other tools. With such a key, a Locker of pglatch
// and the tool exclude each other while a team moves from one to the other.
//
//	// Waits for a "rake db:migrate" that runs, and lets none begin.
//	err := locker.Do(ctx, interop.Rails("shop_production"), migrate)
//
// Each function is pure. It computes what the tool's source computes. Frozen test vectors in
// testdata come from other programs. A tool can change its number in a new version.
// docs/reference/keys-of-other-tools.md names the versions that were checked and what each tool does while it waits.
// It also shows how to move from the tool's key to your own so that two never run at once.
// Advisory locks are per database: both sides must connect to the same one.
//
// Where a tool takes the number from its user, no function is needed: pg_advisory_lock(42) is
// namespace.SingleRaw(42), and pg_advisory_lock(1, 42) is namespace.Pair(1, 42).
//
// A negative key can collide with the key of a leader election of pglatch. For each pair of such
// keys, the probability is 2⁻⁶³. The key of PostgresMigrations is negative, and so are half of
// the 64-bit hashes.
package interop
