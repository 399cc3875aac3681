package prove

func observeExclusion(x *exam) {
	k := x.key
	x.saw("granted", x.try(x.a, k))
	x.saw("refused", !x.try(x.b, k))
	x.saw("independent", x.try(x.b, k.other()) && x.unlock(x.b, k.other()))
	x.unlock(x.a, k)
	again := x.try(x.b, k)
	x.saw("again", again)
	if again {
		x.unlock(x.b, k)
	}
	single := k.single()
	x.saw("granted", x.is(x.a, "pg_catalog.pg_try_advisory_lock("+single+")"))
	x.saw("refusedSingle", !x.is(x.b, "pg_catalog.pg_try_advisory_lock("+single+")"))
	x.is(x.a, "pg_catalog.pg_advisory_unlock("+single+")")
}

func observeShared(x *exam) {
	args := x.key.args()
	try := func(s *session) bool { return x.is(s, "pg_catalog.pg_try_advisory_lock_shared("+args+")") }
	release := func(s *session) { x.is(s, "pg_catalog.pg_advisory_unlock_shared("+args+")") }
	x.saw("granted", try(x.a))
	both := try(x.b)
	x.saw("both", both)
	x.saw("writerRefused", !x.try(x.watch, x.key))
	release(x.a)
	if both {
		release(x.b)
	}
	x.saw("writer", x.try(x.watch, x.key))
	x.saw("readerRefused", !try(x.a))
	x.unlock(x.watch, x.key)
}

func observeLockTable(x *exam) {
	holders := func() string {
		return x.ask(x.watch, "coalesce(pg_catalog.string_agg(pid::pg_catalog.text operator(pg_catalog.||) mode, ' '), '')",
			"from pg_catalog.pg_locks where granted and", x.key.where())
	}
	x.saw("empty", holders() == "")
	x.saw("held", x.try(x.a, x.key))
	x.saw("shown", holders() == x.ask(x.a, "pg_catalog.pg_backend_pid()")+"ExclusiveLock")
	x.unlock(x.a, x.key)
	x.saw("empty", holders() == "" && x.seen["empty"])
}

// observeQueue lets b and then the watcher wait for a lock that a holds.
func observeQueue(x *exam) {
	x.saw("held", x.try(x.a, x.key))
	b := x.wait(x.b, x.key)
	x.saw("waits", x.queued(x.a, b, x.key))
	if x.err != nil || b.answered() {
		return
	}
	w := x.wait(x.watch, x.key)
	x.saw("waits", x.queued(x.a, w, x.key))
	if x.err != nil || w.answered() {
		return
	}
	x.unlock(x.a, x.key)
	first := x.receive(b, w)
	x.saw("first", first == b)
	if x.err != nil || first != b {
		return
	}
	x.saw("one", !w.answered() && x.queued(x.a, w, x.key))
	x.unlock(x.b, x.key)
	if x.receive(w); x.err == nil && w.err != nil {
		x.fail("%w", w.err)
	}
	x.saw("next", x.unlock(x.watch, x.key))
}

func observeUnlock(x *exam) {
	x.saw("notHeld", !x.unlock(x.a, x.key))
	once := x.try(x.a, x.key)
	x.saw("held", x.try(x.a, x.key) && once)
	x.saw("others", !x.unlock(x.b, x.key))
	x.saw("unlocked", x.unlock(x.a, x.key))
	x.saw("counted", !x.try(x.b, x.key))
	x.saw("unlocked", x.unlock(x.a, x.key) && x.seen["unlocked"])
	free := x.try(x.b, x.key)
	x.saw("freed", free)
	if free {
		x.unlock(x.b, x.key)
	}
}
