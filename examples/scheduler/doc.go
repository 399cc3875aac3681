// Package scheduler is a complete program on pglatch, to be read and copied: a
// search server for source repositories, of which any number of nodes run on one
// database. Most of its work is done by every node; periodic work is done by one of
// them, the leader:
//
//	                       all nodes   the leader only
//	query serving              x
//	job claiming               x
//	heartbeat                  x
//	reconciliation             x
//	health                     x
//	refresh scheduler                       x
//	data retention                          x
//	description hook                        x
//	dependency map                          x
//
// A follower does not even build the leader's schedulers: services.Spec calls
// their constructors when leadership comes, starts them in order, and stops them in
// reverse before it goes. What a scheduler writes goes through postgres.InTx: a
// leader that was deposed and does not know it yet cannot commit.
//
// Leadership lives on a connection of its own, which does nothing else, beside the
// pool for work: a pool that is exhausted costs no leadership. When the process dies
// that connection does, PostgreSQL frees the lock, and another node has it within
// milliseconds.
//
// A node comes up in this order: schema and mount (Open), then at once election, query
// serving, jobs, heartbeat and reconciliation (Serve). None of these waits for the outcome
// of the election. A node whose shared directory is missing, is not mounted or cannot be
// written to does not come up: it could lead, and do the leader's work in the wrong place.
//
// The program has no authentication: let it listen on a loopback address, or put
// it behind something that has.
package scheduler
