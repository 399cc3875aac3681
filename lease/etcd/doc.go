// Package etcd keeps leases in an etcd cluster: a lease.Store that survives the loss of any
// machine, as long as a majority of the members can talk to each other. It is a separate module,
// and needs etcd 3.5 or later.
//
//	store, err := etcd.Open(ctx, etcd.Config{Client: clientv3.Config{Endpoints: []string{"a:2379", "b:2379", "c:2379"}}})
//	…
//	defer store.Close()
//	l, err := store.Acquire(ctx, lease.AcquireRequest{Name: "nightly-report", Holder: "worker-1", TTL: time.Minute})
//
// The program pglatch-etcd serves such a store to other languages: pglatch-etcd serve
// locks --store etcd://a:2379,b:2379,c:2379. Any number of these servers can share one cluster.
//
// # What it guarantees
//
// The guarantees of package lease, and:
//
//   - Every acknowledged change is on the disks of a majority. It survives kill -9 of any member,
//     the loss of the leader, and the permanent loss of a minority.
//   - Each answer is from a majority. Reads are linearizable, and each change is one transaction
//     that compares the data on which it was decided. A member that is cut off does not answer. A
//     Store remembers data of names only to save a read before a transaction.
//   - Leases do not depend on the clock of a client or lock server, or on the wall clock of a
//     member. If these clocks differ, by seconds or years, only the times that are shown to
//     people differ.
//   - While no majority answers, an operation ends with *lease.BusyError after Config.Timeout. If
//     its transaction was already sent, the error says that the outcome is unknown. etcd does not
//     undo a change later, and if there is a later effect, it is exactly that of this operation.
//
// # What time it is
//
// Each lease has a key that is attached to an etcd lease, and lasts as long as that key exists.
// The cluster's leader counts the etcd lease down on its monotonic clock, and removes the key by
// a transaction, in order with all other transactions. From then on no read finds the lease, and
// it never becomes valid again. LockDelay, MinHold and MaxLifetime are keys of the same kind.
//
//   - etcd counts whole seconds. A TTL, LockDelay, MinHold or MaxLifetime is rounded up, never
//     down. A TTL is no less than etcd allows: one and a half election timeouts, 2 s with etcd's
//     defaults. Remaining says how much was granted.
//   - A lease lasts up to a second longer than it was granted for, because etcd checks twice a
//     second, and ends at most 1,000 leases in a second.
//   - A new leader of the cluster starts all etcd leases anew. Leases, delays and lifetimes then
//     last longer, by at most their full length. They are never shorter: if the leader changed
//     between the count and the transaction, the lease is counted again from the start.
//   - A leader can be stopped, or its machine or disk can hang. When it resumes, it ends the leases
//     that are over by its own count, even if the next leader has renewed them (etcd issue 15247,
//     partly fixed in etcd 3.7). So the first renewal in each term of etcd's leaders replaces the
//     etcd leases of the lease, its LockDelay and MaxLifetime. No earlier leader counts the new
//     ones. That costs one more message for each, once per term. A lease that has not been renewed
//     since then ends no earlier than its last renewal said; Get can report a longer time.
//   - AcquiredAt, ExpiresAt and the times that Sweep uses come from the writer's wall clock. They
//     are adjusted so that the times of one name never contradict each other.
//
// # Why tokens rise
//
// The first token of a name is the revision of the transaction that acquired it, and each later
// token is one more. Each acquire makes a new revision, so a name that a sweep forgot begins above
// all its earlier tokens. Versions are revisions. Compaction changes neither tokens nor versions.
//
// If the end of a cluster's history is lost, the cluster repeats revisions. So tokens have an era;
// each era adds a trillion (2^40) to the tokens. Before a store makes its first change on a new
// connection, it compares the cluster with a stored description. It begins a new era if one of
// these has changed:
//
//   - the id of the cluster: another cluster, or one that was restored with another token or
//     addresses
//   - the ids of its members: --force-new-cluster, after which the survivor may lack data that it
//     had missed; and any change of the membership, which costs an era and nothing else
//   - the difference between the length of the log and the number of revisions, if it has fallen. It
//     never falls within one history, but a snapshot that was restored under the same names,
//     addresses and token has a new, short log
//   - the cluster's greatest revision, if it is less than the greatest that this process has seen
//
// The other stores detect the new era at their first acquire that is refused because of it, and
// continue in it.
//
// Some cases are not detected:
//
//   - A second restore of one snapshot repeats the tokens of the first, unless other members or a
//     process that saw the first reveal it.
//   - So does a copy of the members' data directories that replaces them (a machine's snapshot),
//     unless a process saw later revisions.
//   - If an operator deletes a key, it is forgotten. If that key is <prefix>\x00era, the eras
//     start over.
//
// In the first two cases, restore with etcdutl snapshot restore --bump-revision 1000000000
// --mark-compacted.
//
// # What it does not guarantee
//
//   - lease/postgres.Guard has no counterpart: etcd cannot guard a transaction of another system.
//     The token is the fence: the resource must refuse a token below the greatest it has seen.
//   - Leases that a restored snapshot or a forced new cluster does not contain are lost. Tokens
//     fence their holders.
//   - AcquireWait has no order: a watch wakes all waiters for a name, and all of them then
//     request it.
//   - As with any etcd, a member whose disk reports a sync that it has not done voids the
//     guarantees.
//
// # Several lock servers
//
// A Store is a lease.Messenger. If several lock servers share one cluster, one of them is active and has all queues. A server that cannot
// reach it, or takes no part in the election, answers on its own. It notifies the others of the names that it changed or waits for: see
// lease/leaseserver. Send is a put of one key. Listeners watch that key, so all of them receive all puts in the order of their revisions.
//
//   - If a member dies or a connection ends, no message is lost: the watch continues at another
//     member where it stopped. It cannot if the history was compacted meanwhile, the cluster was
//     replaced, or only a member without a leader is reachable. Then Listen ends, within 10 s
//     plus Config.Timeout, and the server starts it again. Until then its waiters poll once a
//     second.
//   - A server has one put in flight at a time, with all pending names, up to 64 KiB, and reads the
//     key every 5 s. The key keeps only the last put. The earlier ones are in etcd's history, like
//     each change of a lease: make etcd compact it, with --auto-compaction-retention=1h.
//
// # What is stored
//
//	<prefix><name>\x00    the record: holder, id, token, metadata, times; until a Sweep forgets it
//	<prefix><name>\x00h   while the lease lasts
//	<prefix><name>\x00d   while LockDelay is not over: the TTL and the delay from the last renewal
//	<prefix><name>\x00k   while MinHold is not over
//	<prefix><name>\x00l   while MaxLifetime is not over
//	<prefix>\x00era       the era
//	<prefix>\x00messages  the lock servers' last messages
//
// A lease ends without a Sweep. Sweep counts leases and forgets names. It reads all names, so the
// more names there are, the less often it should run (serve locks --sweep-interval).
//
// # What an operation costs
//
//	acquire            a message that renews an etcd lease, and a transaction
//	renew              the same
//	release            a transaction
//	release and grant  as for acquire: a lock server hands a lock over to its next waiter. Where a lock is passed on
//	                   quickly, the message goes out before the release, and the hand-over is only the transaction
//	refusal, Get       a read, and a message for each time that is reported
//
// A transaction is one commit of etcd. A cycle of acquire and release needs two, as with
// etcd's own mutex. Operations on different names that run at the same time share both
// requests:
//
//   - If no other operation is under way, an operation goes out at once. Operations that arrive
//     while two requests are under way go out in the next one. A request that etcd does not answer
//     delays the next one for 25 ms, or for twice the time of the last request, but for no more
//     than 250 ms.
//   - A shared transaction has one part for each name, with its own comparison. If one comparison
//     fails, the other parts still take effect. One transaction has at most 100 names and 256 KiB.
//     If the members allow less (--max-txn-ops, --max-request-bytes), it is sent in parts.
//   - If a shared transaction gets no answer, its outcome is unknown to all its callers, as with a
//     transaction of their own. If a caller's context ends, the transaction continues.
//   - Locks with the same TTL that are acquired or renewed at the same time share an etcd lease,
//     which is renewed once for all of them. That etcd lease is not renewed again while it has a
//     key: the next renewal of a lock attaches the lock to another etcd lease. So the end of one
//     lock does not affect the others.
//
// Further savings:
//
//   - A Store remembers about the last 8,192 names that it changed. If it does not remember a name,
//     it must read it first, which costs one more request. If another store has changed the name,
//     the transaction only reads the name, and the operation is decided again.
//   - A Store reuses the etcd leases of released locks, up to 1,024. For each TTL, it gets one in
//     advance, by a commit for which no operation waits. If it has none for a TTL, an operation
//     waits for that commit instead of the message.
//   - RenewAll has 200 renewals under way at a time.
//
// A Store of version 0.1.0 does not know shared etcd leases, and fails for names that have one. Do
// not run both versions at the same time.
//
// # Rights
//
// With authentication, the user's role needs only readwrite on the prefix:
//
//	etcdctl role grant-permission locks readwrite --prefix=true pglatch/lease/
//
// # When things go wrong
//
//	a member dies, or is cut off           the others serve; after the leader's death once they have elected another: about a second
//	no majority                            *lease.BusyError, or an unknown outcome, after Config.Timeout
//	the store is with the minority         the same: it reads nothing old
//	a member is stopped and resumes        the others serve; it catches up
//	the leader's clock runs fast or slow   up to a tenth, which Trust allows for, does no harm; wall clocks are not used
//	etcd has no space (NOSPACE alarm)      *lease.BusyError, or an unknown outcome; Health says so; leases end as usual,
//	                                       and last as long as they are renewed, though each renewal fails: compact, defragment, disarm
//	too many requests for etcd             *lease.BusyError
//	a wrong certificate, ours or theirs    *lease.BusyError: no member can be reached
//	a user's token has expired             the client gets a new one silently
//	a wrong password, no right             ErrDenied, which is lease.ErrNotReady
//	the store is closed                    lease.ErrClosed
package etcd
