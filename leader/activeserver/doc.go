// Package activeserver elects the active one of several lock servers (lease/leaseserver) on one store. The
// active server has all queues, and the others forward to it:
//
//	election, err := activeserver.New(activeserver.Config{URL: "https://locks-1.example:8443", Store: store})
//	…
//	server, err := leaseserver.New(leaseserver.Config{
//		Store: store, TLS: certificates, Tokens: tokens,
//		Peers: leaseserver.Peers{Election: election, Token: secret},
//	})
//	…
//	listener, err := net.Listen("tcp", ":8443") // before the election, so that the others find an open port
//	…
//	if err := election.Start(ctx); err != nil { // takes part until ctx ends
//		return err
//	}
//	defer election.Stop()
//	return server.Serve(ctx, listener)
//
// pglatch serve locks does the same. On etcd, its servers and such programs take part in one election.
// On PostgreSQL they do so if the programs set Config.Session, as below.
//
// # Where the election is kept
//
// A lease in the servers' store elects the active server: on PostgreSQL, on etcd, or on a store of your own.
// The lease's name is leaseserver.ElectionLock. Clients cannot acquire that lock.
//
// On PostgreSQL, Config.Session is better if the server can keep a session. A session lock ends with its
// session, so after kill -9 another server is active at once. pglatch serve locks uses such a session lock,
// except behind a pooler in transaction mode, where it uses the lease. To use the session lock:
//
//	import leaderpostgres "github.com/pglatch/pglatch/leader/postgres"
//	…
//	session, err := leaderpostgres.New(leaderpostgres.Config{DSN: dsn, Key: activeserver.SessionKey, NoTerms: true})
//	…
//	election, err := activeserver.New(activeserver.Config{URL: url, Store: store, Session: session})
//
// All servers of a store must use the same kind of lock: all the session lock, or all the lease. Otherwise
// two servers are active. Even then leases are exclusive, and only the order of waiters suffers.
//
// # When something fails
//
//	the active server is killed              with Session, another is active at once; by lease, after 5 s
//	it is stopped, or cut off from the store another is active after 5 s
//	its program ends in order                it gives up first, and waiting requests move to the next one
//	the store cannot be reached              nobody is active; each server answers by itself
//	the servers cannot reach each other      see lease/leaseserver
package activeserver
