// Command tenants shows, with real processes, that shards spread over nodes and are never owned twice:
//
//	make demo-shards                                # and stay until Ctrl-C
//	go run ./examples/tenants -once                 # exit 1 if a claim fails
//	go run ./examples/tenants -once -break          # the control: writes without guards, and a claim fails
//
// 300 tenants are the shards of three nodes, each a process of its own, on one PostgreSQL. Each tenant's work adds a row
// to a table every two seconds, with the tenant's term, in a transaction that is guarded: it commits only while that
// term owns the tenant. When the context of the work ends, it writes once more: as a program does that has
// looked at its context a moment before. If the tenant was given up in good order it is its still; if not, the guard refuses.
//
// Then a node is killed with kill -9, one joins, a connection is terminated, a node drains, one is stopped
// past its lease and goes on, and one leaves in good order. The terminal shows all the time which node owns which tenant, as the nodes themselves say.
// At the end it is the table alone that judges: one writer in each term, no row of an old term after one of a
// new term, and for how long nobody worked for a tenant.
package main
