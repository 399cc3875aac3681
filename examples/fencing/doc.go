// Command fencing shows what a lease alone cannot do, and what its token is for:
//
//	go run ./examples/fencing
//
// A writer, a process of its own, acquires a lease, renews it with heartbeats, looks
// whether it still has it, and writes. Between the look and the write it is stopped,
// as by a virtual machine that moves, a laptop that sleeps or a container that gets
// no CPU. Its lease expires, another writer takes over and writes. Then the first
// goes on: it has looked, so it writes.
//
// Nothing in the first writer can help, because it does not know that time has
// passed. The resource must: it refuses a token that is lower than one that it has
// seen. Four scenes show this:
//
//	                      without fencing             with fencing
//	HTTP                  the late write is stored    412 Precondition Failed
//	row in PostgreSQL     the late write is stored    postgres.Guard: the transaction aborts
//
// The HTTP scenes keep leases in SQLite and need nothing but Go. The others find,
// start or fetch a PostgreSQL; without one (or with -http-only) they are left out.
package main
