// Package pgtest gives tests a real PostgreSQL and a separate database each, because all sessions of one database
// share PostgreSQL's advisory locks.
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
// The server is that of PGLATCH_TEST_DATABASE_URL or TEST_DATABASE_URL. There, only databases named
// pglatch_test_* are created and dropped. Without these variables it is a server of package pgserver, started at
// the first DSN and removed at the end. A test that stops, kills or configures its server takes a separate one
// from [StartServer]. Without any PostgreSQL the tests fail, and say how to get one. They are never skipped,
// except [Long] tests in the short form of the tests.
package pgtest
