// Package etcd keeps leases in an etcd cluster: a lease.Store that survives the loss of any
// machine, as long as a majority of the members can talk to each other. It is a module of its
// own, and needs etcd 3.5 or later.
//
//	store, err := etcd.Open(ctx, etcd.Config{Client: clientv3.Config{Endpoints: []string{"a:2379", "b:2379", "c:2379"}}})
//	…
//	defer store.Close()
//	l, err := store.Acquire(ctx, lease.AcquireRequest{Name: "nightly-report", Holder: "worker-1", TTL: time.Minute})
//
// The program pglatch-etcd, in cmd, serves such a store to other languages: pglatch-etcd
// serve locks --store etcd://a:2379,b:2379,c:2379. Any number of these servers can share one cluster.
//
// # What it guarantees
//
// What package lease says of every store, and:
//
//   - What was acknowledged is on the disks of a majority. It survives kill -9 of any member,
//     the loss of the leader, and of a minority for good.
//   - Each answer is from a majority: reads are linearizable, and each change is one
//     transaction that compares what it was decided by. A member that is cut off answers nothing.
//   - No clock of a client or lock server decides anything, nor does the wall clock of a
//     member. Clocks that differ, by seconds or years, show only in the times that people read.
//   - While no majority answers, an operation ends with *lease.BusyError after Config.Timeout, or,
//     if its transaction was sent, with an error that says that the outcome is unknown. etcd
//     orders nothing by then that it can take back later: what is done later is that very operation.
//
// # What time it is
//
// A lease goes on as long as a key of it exists, which is attached to an etcd lease. The
// cluster's leader counts that down on its monotonic clock and removes the key by a transaction, in the
// order of all others: from there on nobody finds the lease, and it never comes back.
// LockDelay, MinHold and MaxLifetime are keys of the same kind.
//
//   - etcd counts whole seconds. A TTL, LockDelay, MinHold or MaxLifetime is rounded up, never
//     down, and a TTL is no less than etcd allows: one and a half election timeouts, 2 s as etcd comes.
//     Remaining says what was granted.
//   - A lease lasts up to a second longer than that, because etcd looks twice a second, and 1,000 end in a second at most.
//   - A new leader of the cluster begins to count all etcd leases anew: leases, delays and lifetimes
//     last longer then, by no more than their whole time. They are never shorter: where the
//     leader changed between the count and the transaction, it is counted again.
//   - A leader that was stopped, or whose machine or disk hung, ends when it goes on what is over by its own
//     count, whatever the one after it has renewed (etcd issue 15247, which etcd 3.7 mends in part). So the first renewal
//     in each term of etcd's leaders replaces the etcd leases of the lease, its LockDelay and MaxLifetime
//     by new ones, which no earlier leader counts: a message more for each, once in a term. What was
//     not renewed since ends when its last renewal said, at the earliest; Get can say more of it.
//   - AcquiredAt, ExpiresAt and what Sweep forgets go by the wall clock of who wrote them,
//     moved so that the times of one name never contradict each other.
//
// # Why tokens rise
//
// The first token of a name is the revision of the transaction that acquired it, and each later
// one is one more. As each takes a revision, a name that a sweep forgot begins above all that it
// had. Versions are revisions. Compaction changes neither.
//
// A cluster whose history was cut off repeats revisions. So tokens have an era, which is added
// to them, a trillion (2^40) for each. Before a store first changes something on a new connection it
// compares the cluster with what is stored of it, and begins an era if one of these has changed:
//
//   - the id of the cluster: another cluster, or one that was restored with another token or addresses;
//   - the ids of its members: --force-new-cluster, after which the survivor may not have
//     what it had missed, and any change of the membership, which costs an era and nothing else;
//   - by how much the log is longer than the revisions, which never falls in one history: a
//     snapshot that was restored under the same names, addresses and token has a new, short log;
//   - the greatest revision that this process has seen, if the cluster's is less.
//
// The other stores learn of it by the first acquire of theirs that is refused for it, and go on in it.
//
// What is not detected: a second restore of one snapshot counts the tokens of the first one once
// more, unless other members or a process that saw the first show it; so does a copy of the members' data directories
// that is put in their place (a machine's snapshot), unless a process saw what was after it. Then restore with etcdutl snapshot restore
// --bump-revision 1000000000 --mark-compacted. And a key that an operator deletes is forgotten: if that is
// <prefix>\x00era, the eras begin anew.
//
// # What it does not guarantee
//
//   - lease/postgres.Guard has no counterpart: no transaction elsewhere waits for etcd. The
//     token is the fence: what is written to must refuse one below the greatest it has seen.
//   - Leases that a restored snapshot or a forced new cluster does not know are lost. Tokens fence who had them.
//   - Nobody is served in order by AcquireWait: it is woken by a watch, and all who wait for a name ask then.
//   - A member whose disk says synced and is not takes the promises away, as for any etcd.
//
// # Several lock servers
//
// A Store is a lease.Messenger: lock servers of one cluster tell each other who waits, and that a lock
// is free, and serve those who wait in one order for each lock; how far it holds is in
// lease/postgres, whose servers do the same over LISTEN and NOTIFY. Send is a put of one key,
// and who listens watches it: all hear all puts in the order of their revisions.
//
//   - A member that dies, or a connection that ends, loses no message: the watch goes on at another
//     member where it was. If it cannot, because the history was compacted meanwhile, the cluster was
//     replaced, or only a member without a leader is reached, Listen ends, within 10 s and
//     Config.Timeout, and the server begins anew; until then its waiters look once a second.
//   - A server has one put under way at a time, with all that there is to say then, up to 64 KiB: as
//     many a second as commits take, one at least, by which the others know that it lives; and one
//     read each 5 s. The key keeps the last put. The others are history, as each change of
//     a lease is: let etcd compact it, with --auto-compaction-retention=1h.
//
// # What is stored
//
//	<prefix><name>\x00    the record: holder, id, token, metadata, times; until a Sweep forgets it
//	<prefix><name>\x00h   while the lease goes on
//	<prefix><name>\x00d   while LockDelay is not over: the TTL and the delay from the last renewal
//	<prefix><name>\x00k   while MinHold is not over
//	<prefix><name>\x00l   while MaxLifetime is not over
//	<prefix>\x00era       the era
//	<prefix>\x00messages  what lock servers said last to each other
//
// A lease ends without a Sweep. Sweep counts, and forgets names; it reads all names, so let it
// be rarer the more there are (serve locks --sweep-interval). etcd leases whose lock was released are used again, up to 1,024 of
// a Store: a cycle of acquire and release is two commits, as with etcd's own mutex. Commits of requests that come
// together share their sync, which etcd sees to. RenewAll has 64 renewals under way at a time, each a
// read, a message to the leader and a commit: 1,000 leases take 0.8 s on three busy processes.
//
// # Rights
//
// With authentication the user's role needs readwrite on the prefix, and nothing else:
//
//	etcdctl role grant-permission locks readwrite --prefix=true pglatch/lease/
//
// # When things go wrong
//
//	a member dies, or is cut off           the others serve; after the leader's death when they have elected one: about a second
//	no majority                            *lease.BusyError, or an unknown outcome, after Config.Timeout
//	the store is with the minority         the same: it reads nothing old
//	a member is stopped and goes on        the others serve; what it did not hear of it hears
//	the leader's clock runs fast or slow   a tenth, as Trust allows for, is no harm; wall clocks take no part
//	etcd has no space (NOSPACE alarm)      *lease.BusyError, or an unknown outcome; Health says so; leases end as they do,
//	                                       and go on as long as they are renewed, though each renewal fails: compact, defragment, disarm
//	too many requests for etcd             *lease.BusyError
//	a wrong certificate, ours or theirs    *lease.BusyError: nobody can be reached
//	a user's token has ended               a new one is got, and nothing is noticed
//	a wrong password, no right             ErrDenied, which is lease.ErrNotReady
//	the store is closed                    lease.ErrClosed
package etcd
