// Package mutex offers the locks of package advisory through the interfaces of two other libraries,
// for programs that migrate from them: a Mutex like redsync's, and a Locker like Gitea's
// globallock. New code should use advisory.Locker.Do.
//
//	m := mutex.New(locker, Agents.ID(42))
//	if err := m.LockContext(ctx); err != nil {
//		return err
//	}
//	defer m.UnlockContext(ctx)
//
// How these locks behave in Redis and how they behave here:
//
//	                        in Redis                                  here
//	the holder dies         the key expires: after 8 s in redsync,    free at once; after SessionTTL if
//	                        30 s in Gitea                             the network went silent
//	work takes longer       gone, unless it is extended in time       held as long as the session lives
//	the lock is lost        silent; only Extend and Unlock report it  Context ends; they report it too
//	ctx ends, then unlock   UnlockContext fails, the key stays        released all the same
//	another holder has it   32 tries, 50 to 250 ms apart              a queue, for the Locker's Wait
//
// There is no Lock method without an error, and therefore no sync.Locker. A lock in a database can
// fail, and a caller that does not get the error would continue without the lock.
//
// The guarantees and the limits are those of package advisory: a lock that is not inside the
// transaction that it protects cannot keep every late write out.
package mutex
