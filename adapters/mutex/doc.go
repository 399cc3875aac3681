// Package mutex has the locks of package advisory in the shape of two libraries that
// programs may come from: a Mutex as redsync's, and a Locker as Gitea's globallock. New code
// is better off with advisory.Locker.Do.
//
//	m := mutex.New(locker, Agents.ID(42))
//	if err := m.LockContext(ctx); err != nil {
//		return err
//	}
//	defer m.UnlockContext(ctx)
//
// What these locks do in Redis and what they do here:
//
//	                        in Redis                                  here
//	the holder dies         the key expires: after 8 s in redsync,    free at once; after SessionTTL if
//	                        30 s in Gitea                             the network went silent
//	work takes longer       gone, unless it is extended in time       held as long as the session lives
//	the lock is lost        nobody is told; Extend and Unlock say so  Context ends; they say so too
//	ctx ends, then unlock   UnlockContext fails, the key stays        released all the same
//	somebody else has it    32 tries, 50 to 250 ms apart              a queue, for the Locker's Wait
//
// There is no method Lock without an error, and so no sync.Locker: a lock in a database can
// fail to come, and who cannot be told of that would go on without it.
//
// The guarantees are those of package advisory, and so are the limits: a lock that is not
// inside the transaction that it protects cannot keep every late write out.
package mutex
