// Command tenants shows, with real processes, that shards spread over nodes and never have two owners:
//
//	make demo-shards                                # and stay until Ctrl-C
//	go run ./examples/tenants -once                 # exit 1 if a claim fails
//	go run ./examples/tenants -once -break          # the control: writes without guards, and a claim fails
//
// 300 tenants are the shards of three nodes, each a process of its own, on one PostgreSQL. Each tenant's work adds a row
// to a table every two seconds, with the tenant's term, in a guarded transaction: it commits only while that
// term owns the tenant. When the context of the work ends, the work writes once more, like a program that checked
// its context a moment before. After a clean hand-over the tenant is still its own. Otherwise the guard refuses.
//
// Then a node is killed with kill -9, one joins, one loses a connection, and one drains. One is stopped past its
// lease and resumes, and one leaves cleanly. All the time the terminal shows which node owns which tenant, as the
// nodes themselves report. At the end only the table decides: one writer in each term, no row of an old term after
// one of a new term, and for how long nobody worked for a tenant.
package main
