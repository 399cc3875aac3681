// Package scheduler is a complete program on pglatch, to be read and copied: a
// search server for source repositories. Any number of nodes run on one database.
// Every node does most of the work. One of them, the leader, does the periodic work:
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
// A follower does not even build the leader's schedulers. services.Spec calls their
// constructors when leadership comes, starts them in order, and stops them in reverse
// order before leadership ends. Schedulers write through postgres.InTx: a leader that was
// deposed and does not know it yet cannot commit.
//
// Leadership has a dedicated connection beside the work pool, so an exhausted pool costs
// no leadership. When the process dies, that connection dies with it. PostgreSQL frees the
// lock, and another node has it within milliseconds.
//
// A node starts in this order: schema and mount (Open), then at once election, query
// serving, jobs, heartbeat and reconciliation (Serve). None of these waits for the outcome
// of the election. A node does not start if its shared directory is missing, is not mounted
// or cannot be written to: it could lead, and do the leader's work in the wrong place.
//
// The program has no authentication: let it listen on a loopback address, or put it behind
// a proxy that has.
package scheduler
