// Package agents is a complete program on pglatch, to be read and copied: a server
// that follows coding agents through the hooks that they call.
//
// Several things change one agent at the same time: its hooks, which arrive at any
// replica; four background workers on every replica; and a deferred stop that waits
// for the agent's transcript. Each of them holds the agent's advisory lock while it
// reads, decides and commits:
//
//	POST /hook/*      session_id → agent      404, 400    before any lock
//	                  lock agent/<id>         423, 503    wait up to Config.LockTimeout
//	                  read, change, commit                the lock outlives every commit
//	                  unlock
//	workers           for each agent: lock or skip, read, change, commit, unlock
//	deferred stop     wait for the transcript, lock, read again, change or skip, commit, unlock;
//	                  until it is done
//	hand-off          lock both agents, read, change, commit, unlock
//	GET /hook/status  no lock
//
// Locks have their own connection pool beside the work pool, so that neither can
// starve the other. Each replica has 10 connections for locks, 15 for work, and one
// more for the list of locks.
//
// The agent's lock does not guard everything. A turn is summarised under its row
// lock, because a model call takes long and affects nothing else of the agent. A file
// lock guards the configuration file. A mutex guards the state that lives in the memory
// of one process:
//
//	a mutex, because another process may know something else    the agent's lock, and no mutex
//	broadcaster      the connected browsers                     capture of progress (pre- and post-tool-use)
//	sessionRegistry  the agents of sessions                     reconciling of transcripts
//	inferenceCache   what the model said                        hand-off
//	rate.Limiter     calls of the model                         all other hooks
//	tokenStore       who is let in
//
// Without tokens the program answers only its own host. With Config.Tokens every request
// needs one of them. Tokens travel in clear text: put TLS in front where others can read
// the traffic.
package agents
