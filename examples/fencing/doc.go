// Command fencing shows the limits of a lease alone, and the purpose of its token:
//
//	go run ./examples/fencing
//
// A writer, a process of its own, acquires a lease, renews it with heartbeats, checks that
// it still has the lease, and writes. Between the check and the write it is stopped, as by a
// virtual machine that moves, a laptop that sleeps or a container that gets no CPU. Its
// lease expires, and another writer takes over and writes. Then the first writer resumes.
// It has already checked, so it writes.
//
// Nothing in the first writer can help, because it does not know that time has passed. The
// resource must: it refuses a token that is lower than one that it has seen. Four scenes
// show this:
//
//	                      without fencing             with fencing
//	HTTP                  the late write is stored    412 Precondition Failed
//	row in PostgreSQL     the late write is stored    postgres.Guard: the transaction aborts
//
// The HTTP scenes keep leases in SQLite and need only Go. The others find, start or fetch a
// PostgreSQL. Without one, or with -http-only, they are skipped.
package main
