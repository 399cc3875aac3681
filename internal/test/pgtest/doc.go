// Package pgtest gives tests a real PostgreSQL and each test a database of its own, because PostgreSQL's
// advisory locks are shared by everything in one database.
//
// A package of tests calls [Main] from its TestMain, and each test calls [DSN]:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
//	func TestIt(t *testing.T) {
//		t.Parallel()
//		conn, err := pgx.Connect(t.Context(), pgtest.DSN(t))
//		...
//
// The server is that of PGLATCH_TEST_DATABASE_URL or TEST_DATABASE_URL, where only databases named pglatch_test_*
// are made and dropped; without them one of package pgserver, started at the first DSN and removed at the end.
// A test that stops, kills or configures its server takes one of its own from [StartServer].
// Without any PostgreSQL the tests fail, and say how to get one; they are never skipped, except what is [Long],
// in the short form of the tests.
package pgtest
