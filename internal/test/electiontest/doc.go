// Package electiontest checks elections among processes that are killed, stopped, cut off and asked to
// resign, on any backend of leader. Candidates are child processes of the test. Operations are checked
// where they arrive, at an observer outside of all candidates, never by what a candidate believes. The
// package needs Linux: the kernel reports when an operation arrived.
//
// # The checks
//
// A leader acts about every millisecond: it checks its context, and sends the observer a datagram with
// its term. The observer makes two checks of each datagram.
//
//   - An operation is late if it arrives after the first operation of a later term. A Fault's Notice can
//     excuse it. So can a stop of the process just before the operation. If a signal stopped it, the last
//     check of the context was before it was woken. If a busy machine did, the check was before any
//     other node led, 50 ms or more ago. Nothing else excuses it.
//   - The fence accepts an operation unless it has seen a greater term. An accepted operation is stale if
//     another leader's operation has been accepted since that leader's last. None may be stale, whatever
//     the fault. Stubborn leaders continue for a second after their context ended, with operations that
//     are only for the fence.
//
// In addition, terms rise, one term has one leader, and another node leads within the bound of the fault.
// Events come in the order that package leader guarantees, and no lock is held when all have stopped.
// Controls have leaders that do not check their context and an open fence. The checks must find their
// errors: see Control.
//
// # How to write a setup
//
// In TestMain a test binary declares the roles of its children. A role makes a backend from the settings
// of its job and joins the election with it:
//
//	func TestMain(m *testing.M) {
//		electiontest.Main(map[string]electiontest.Role{"file": standOnFile}) // exits in a child
//		leak.Main(m) // or pgtest.Main(m)
//	}
//
//	func standOnFile(ctx context.Context, c *electiontest.Child) error {
//		return c.Stand(ctx, file.NewBackend(c.Settings["path"]), nil)
//	}
//
// A test describes the setup: the location of the election, the faults that can occur there, and how soon
// another node then leads. Then it plays:
//
//	func TestOneLeadsWhateverHappens(t *testing.T) {
//		path := filepath.Join(t.TempDir(), "leader.json")
//		quick := electiontest.RetryAtMost + electiontest.RenewTimeout
//		electiontest.Play(t, electiontest.Setup{
//			Least: 2, Most: 9,
//			Join: func(n *electiontest.Node) {
//				n.Job.Role, n.Job.Settings = "file", map[string]string{"path": path}
//			},
//			Faults: []electiontest.Fault{
//				electiontest.Killed(electiontest.Lease, quick),
//				electiontest.Suspended(electiontest.Lease, quick),
//				electiontest.Deposed(0, quick),
//				electiontest.Retired(0, quick),
//			},
//		})
//	}
//
// Each Fault has two bounds. The first is the time before another node can lead on the fastest machine,
// such as the lease. The second depends on the machine's speed, and may take twenty times as long before
// a test fails. If nodes reach a server, the setup puts a faultproxy in front of it for each node, with
// Node.Through; the nodes can then be CutOff. A fault of the server is the setup's own Outage. Its Strike
// stops the server and starts it again. It is Survivable if the leader may continue to lead.
//
// Candidates that are not a leader.Elector play a role too. The role calls Child.Say with the events of
// the log below, Child.Lead while it leads, and Child.Obey. A Fault without guarantees for such candidates
// does not Fit them.
//
//	acquired TERM    recovered TERM    released TERM    lost TERM [error]
//	follows          another node leads
//	error TEXT       stopped [error]
//	count NAME N     adds N to Cluster.Count(NAME)
//	failed TEXT      and everything else fails the test
//
// 12 rounds are played, and 200 in the long form (see internal/test/soak); PGLATCH_SEED repeats the
// faults of a run.
package electiontest
