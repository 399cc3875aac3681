// Package lockmode is the one table of the modes of an advisory.Locker, for tests. A test's assertions about
// locks hold in every mode, or the table says where they do not, and why:
//
//	func TestIt(t *testing.T) {
//		t.Parallel()
//		lockmode.Run(t, func(t *testing.T) {
//			locker, err := advisory.Open(t.Context(), lockmode.Of(t).Config(advisory.Config{DSN: pgtest.DSN(t)}))
//			...
//
// A test that opens a Locker through Of and runs in no mode fails.
package lockmode
