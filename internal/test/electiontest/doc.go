// Package electiontest checks elections among processes that are killed, stopped,
// cut off and told to go, on any backend of leader. Candidates are child processes
// of the test; operations are checked where they arrive, at an observer outside of all of
// them, never by what a candidate believes. It needs Linux: the kernel tells when an
// operation arrived.
//
// # The checks
//
// A leader acts every millisecond or so: it looks at its context, and sends the
// observer a datagram with its term. The observer has two checks about each.
//
//   - An operation is late if it arrives after the first operation of a later term. Nothing excuses
//     it, but for one that a process was about to do when it was stopped by a signal
//     (it looked before it was woken) or by a busy machine (it looked before anybody else led, 50 ms
//     or more ago), and what a Fault states as its Notice.
//   - The fence accepts an operation unless it has seen a greater term. An accepted operation is stale if
//     another has been accepted since that leader's last: none may be, whatever the
//     fault. Stubborn leaders go on for a second after their context ended with operations that are
//     meant for the fence alone.
//
// Beside these, terms rise, one term has one leader, another leads within the bound of
// the fault, events come in the order that package leader promises, and nothing is
// held when all have stopped. Controls, with leaders that do not look at their context and
// a fence that is open, must be found guilty: see Control.
//
// # How to write a setup
//
// A test binary says in TestMain which roles its children can play. A role makes a
// backend from the settings of its job and stands for election with it:
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
// A test describes the setup, which is where the election lives, what can go
// wrong there and how soon another leads then, and plays:
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
// Each Fault has two bounds: what passes before another can lead on the
// fastest machine, such as the lease, and what the machine's speed decides, which may
// take twenty times as long before a test fails. A setup whose nodes reach a server puts
// a faultproxy before it for each node, with Node.Through, and can then be CutOff.
// What happens to the server is an Outage of the setup's own. Its Strike stops the
// server and starts it again; it is Survivable if the leader may go on leading.
//
// Candidates that are no leader.Elector play a role too: it calls Child.Say with the
// events of the log below, Child.Act while it leads, and Child.Obey. A Fault that they
// promise nothing for does not Fit them.
//
//	acquired TERM    recovered TERM    released TERM    lost TERM [error]
//	follows          somebody else leads
//	error TEXT       stopped [error]
//	count NAME N     adds to what Cluster.Count tells
//	failed TEXT      and everything else fails the test
//
// 12 rounds are played, and 200 in the long form (see internal/test/soak); PGLATCH_SEED repeats the
// faults of a run.
package electiontest
