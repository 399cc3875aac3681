// Package turnstest has an in-memory stand-in for PostgreSQL, for tests of programs that use package turns, and the
// test suite that both the stand-in and a real PostgreSQL pass. The tests need no PostgreSQL and no network, and do not
// wait for real time.
//
//	server := turnstest.NewServer()
//	a, err := server.Open(turns.Config{Name: "chat", Namespace: Conversations}) // one process
//	b, err := server.Open(turns.Config{Name: "chat", Namespace: Conversations}) // another one
//	go a.Serve(ctx, handler)
//	ticket, err := b.Post(ctx, Conversations.Text("42"), turns.Message{Body: body})
//
// Only the server is a stand-in. The mailboxes are those of package turns, and the Lockers those of package advisory. So
// order, attempts, pauses, dead letters, steering and interrupts are the real ones. Everything works in a
// testing/synctest bubble, where waits cost no real time. Open and close the processes inside the bubble.
//
// What differs from PostgreSQL:
//
//   - The server executes no statement of the test's program. It answers that one row was changed, and queries return no
//     rows. Statements returns those whose transactions were committed.
//   - Isolation levels and lock_timeout have no effect. Sends in opposite orders get ErrDeadlock at once.
//   - Pools use pgx.QueryExecModeExec. There is no database/sql: CommitSQL and SendSQL need a real
//     PostgreSQL.
package turnstest
