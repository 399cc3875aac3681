// Turns of one entity: two senders, two servers and the tables. README.md explains how to read this.
//
// check order: turns take the messages in the order of their commits, each ends once, and only the current turn commits
//   small: -DSENDS=2 -DRESENDS=0 -DFAULTS=1 -DINTERRUPTS=1 -DRETRIES=0 -DATTEMPTS=1 -DPOISON=0
//   large: bitstate -DSENDS=3 -DRESENDS=0 -DFAULTS=2 -DINTERRUPTS=1 -DRETRIES=1 -DATTEMPTS=2 -DPOISON=2
// check resent: the same, with a message that comes up to three times
//   small: -DSENDS=3 -DRESENDS=2 -DFAULTS=0 -DINTERRUPTS=0 -DRETRIES=0 -DATTEMPTS=1 -DPOISON=0
//   large: -DSENDS=4 -DRESENDS=3 -DFAULTS=1 -DINTERRUPTS=0 -DRETRIES=0 -DATTEMPTS=1 -DPOISON=0
// live ended: each message ends, committed or dead
//   small: -DSENDS=2 -DRESENDS=0 -DFAULTS=1 -DINTERRUPTS=0 -DRETRIES=1 -DATTEMPTS=1 -DPOISON=1
//   large: -DSENDS=2 -DRESENDS=0 -DFAULTS=2 -DINTERRUPTS=0 -DRETRIES=1 -DATTEMPTS=2 -DPOISON=2

#define NOBODY 4
#define bit_of(n) (1 << (n))
#define server_of(s) (2 + (s)) /* as the owner of a send lock */

mtype:sending = { IDLE, BEGUN, LOCKED, STORED, COMMITTED };
mtype:phase = { RESTS, CLAIMS, CLAIMED, RUNS, CHECKED };
mtype:state = { NONE, READY, RUNNING };

// The tables. A message is stored under its number, and a set of messages is a set of bits.
byte number;            // of the sequence
byte waiting, dead;     // messages, and dead letters
byte id[SENDS + 1];     // of each number, the ID that its sender chose
byte recorded;          // IDs that are recognised
mtype:state row;        // the row of the entity; NONE = there is no row
byte owner = NOBODY;    // the node whose turn runs; NOBODY = one that has no lock any more
byte token, attempt, after;
bool interrupt;         // the running turn is to end

// The locks.
byte send_lock = NOBODY;// a transaction's advisory lock: a sender, or a server that ends a turn
byte row_lock = NOBODY; // whose transaction has the row of the entity
byte mutex = NOBODY;    // the server that has the entity's session lock
bool node[2] = true;    // a server has its node's session lock

// The senders.
mtype:sending sending[2];
byte sends, resends = RESENDS, its_id[2], its_number[2];
bool makes_row[2];

// The servers. Server 0 can be stopped.
mtype:phase phase[2];
byte turn[2], taken[2]; // its token, and the messages that its handler has
bool lost[2], stopped;  // the session with the mutex has ended, and the server has not noticed it
bool awake, woken;      // a server looks by itself; a notification waits

// Bounds, and what only the properties need.
byte faults = FAULTS, interrupts = INTERRUPTS, retries = RETRIES;
byte fresh;             // the IDs that were used
byte commits, ended, order[SENDS + 1], over, retried;
byte hit;               // the token that an interrupt was for

#define lowest(set) ((set) & 2 -> 1 : ((set) & 4 -> 2 : ((set) & 8 -> 3 : ((set) & 16 -> 4 : 5))))
#define behind(n) (waiting & ((n) == 0 -> 62 : ((n) == 1 -> 60 : ((n) == 2 -> 56 : ((n) == 3 -> 48 : ((n) == 4 -> 32 : 0))))))
#define highest(set) ((set) >= 32 -> 5 : ((set) >= 16 -> 4 : ((set) >= 8 -> 3 : ((set) >= 4 -> 2 : ((set) >= 2 -> 1 : 0)))))

// end says that a message is committed or dead: messages end in the order in which their transactions committed. Only a
// dead letter that an operator retries comes later, and again.
inline end(n) {
	assert(waiting & bit_of(n));
	if
	:: retried & bit_of(n)
	:: else ->
		assert(order[ended] == n); ended++;
		assert(!(over & bit_of(id[n]))); over = over | bit_of(id[n])
	fi;
	waiting = waiting & ~bit_of(n)
}
inline end_all(set) {
	do
	:: (set) != 0 -> end(lowest(set)); set = set & ~bit_of(lowest(set))
	:: else -> break
	od
}

#ifdef NO_ID
#define known false
#else
#ifdef ID_ENDS_WITH_MESSAGE
#define known ((recorded & ~over) & bit_of(its_id[s]))
#else
#define known (recorded & bit_of(its_id[s]))
#endif
#endif

inline take_number() {
	number++; its_number[s] = number; id[number] = its_id[s];
	printf("sender %d: message %d gets number %d\n", s, its_id[s], number)
}
inline unlock(lock, x) {
	if
	:: lock == x -> lock = NOBODY
	:: else
	fi
}
inline forget() { its_id[s] = 0; its_number[s] = 0; makes_row[s] = false; sending[s] = IDLE }

// A sender is a transaction. It sends a new message, or one that was sent before: its sender did not learn what happened.
proctype Sender(byte s) {
end_sender:	do
	:: d_step { sending[s] == IDLE && sends < SENDS -> sends++; fresh++; its_id[s] = fresh; sending[s] = BEGUN }
	:: d_step { sending[s] == IDLE && sends < SENDS && fresh > 0 && resends > 0 -> sends++; resends--; its_id[s] = 1; sending[s] = BEGUN; printf("sender %d: sends message 1 again\n", s) }
#ifdef NUMBER_FIRST
	:: d_step { sending[s] == BEGUN && its_number[s] == 0 && !known -> take_number() }
	:: d_step { sending[s] == BEGUN && (its_number[s] != 0 || known) && send_lock == NOBODY -> send_lock = s; sending[s] = LOCKED }
#else
	// code: turns/schema/send.sql pglatch_turns.lock_sends
	:: d_step { sending[s] == BEGUN && send_lock == NOBODY -> send_lock = s; sending[s] = LOCKED; printf("sender %d: has the lock\n", s) }
#endif
	// code: turns/schema/send.sql pglatch_turns.put
	:: d_step { sending[s] == LOCKED && known -> printf("sender %d: message %d is known\n", s, its_id[s]); unlock(send_lock, s); forget() }
	:: d_step { sending[s] == LOCKED && !known ->
#ifndef NUMBER_FIRST
		take_number();
#endif
		makes_row[s] = (row == NONE);
#ifdef UNLOCK_FIRST
		unlock(send_lock, s);
#endif
		sending[s] = STORED }
	// code: turns.(*Mailbox).Send
	:: d_step { sending[s] == STORED ->
		waiting = waiting | bit_of(its_number[s]); recorded = recorded | bit_of(its_id[s]);
		order[commits] = its_number[s]; commits++;
		if
		:: makes_row[s] && row == NONE -> row = READY; after = its_number[s] - 1; attempt = 0; token = 0
		:: else
		fi;
		// Servers that look by themselves are not woken.
		if
		:: !awake -> woken = true
		:: else
		fi;
		printf("sender %d: message %d is committed with number %d\n", s, its_id[s], its_number[s]); sending[s] = COMMITTED }
	:: d_step { sending[s] == STORED -> printf("sender %d: aborts\n", s); unlock(send_lock, s); forget() }
	// PostgreSQL releases the locks of a transaction when others can see what it did.
	:: d_step { sending[s] == COMMITTED -> unlock(send_lock, s); forget() }
	od
}

#define step(p) (phase[s] == p && !(stopped && s == 0))
#define active(x) ((phase[x] == RUNS || phase[x] == CHECKED) && !lost[x])
#define holds_poison(m) (taken[s] & bit_of(m)) && id[m] == POISON
#define poisoned (holds_poison(1) || holds_poison(2))
#define free_row (row_lock == NOBODY)

// leave ends a turn at its server, and all locks that it has.
inline leave(s) {
	unlock(row_lock, s); unlock(send_lock, server_of(s)); unlock(mutex, s);
	lost[s] = false; turn[s] = 0; taken[s] = 0; phase[s] = RESTS
}

inline leave_node(x) {
	node[x] = false;
	if
	:: owner == x -> owner = NOBODY
	:: else
	fi
}
inline lose_mutex(x) { mutex = NOBODY; lost[x] = true }
inline die(x) { leave(x); leave_node(x) }

#ifdef INTERRUPT_STAYS
inline forget_interrupt() { skip }
#else
inline forget_interrupt() { interrupt = false }
#endif

// rest makes the entity ready again. Its row is deleted if it has no message and nobody is sending one.
// code: turns/schema/serve.sql pglatch_turns.rest
inline rest() {
	owner = NOBODY; forget_interrupt();
	if
#ifdef REST_WITHOUT_LOCK
	:: behind(after) == 0 -> row = NONE
#else
	:: behind(after) == 0 && (send_lock == NOBODY || send_lock == server_of(s)) -> row = NONE
#endif
	:: else -> row = READY
	fi;
	if
	:: row == NONE -> token = 0; attempt = 0; after = 0
	:: else
	fi
}

#ifdef NO_LOOK
#define may_look woken
#else
#define may_look true
#endif
#ifdef NO_TOKEN
#define current (row == RUNNING)
#else
#define current (row == RUNNING && token == turn[s])
#endif
#ifdef NO_ROW_LOCK
#define has_row true
#else
#define has_row (row_lock == s)
#endif

// A new turn has a token that nobody remembers: five are enough.
#define unused(t) (token != t && turn[0] != t && turn[1] != t && hit != t)
#define new_token (unused(1) -> 1 : (unused(2) -> 2 : (unused(3) -> 3 : (unused(4) -> 4 : 5))))
inline claim(set) {
	turn[s] = new_token; taken[s] = set;
	row_lock = s; phase[s] = CLAIMS
}

#define between (behind(after) & ~behind(highest(taken[s])) & ~taken[s])

proctype Server(byte s) {
end_server:	do
	// code: turns/schema/serve.sql pglatch_turns.claim
	// code: turns/schema/serve.sql pglatch_turns.take
	:: d_step { step(RESTS) && may_look && node[s] && row == READY && free_row && behind(after) != 0 -> woken = false; awake = true; claim(bit_of(lowest(behind(after)))) }
	:: d_step { step(RESTS) && may_look && node[s] && row == READY && free_row && attempt == 0 && behind(after) != 0 -> woken = false; awake = true; claim(behind(after)) }
	:: d_step { step(RESTS) && row == READY && free_row && behind(after) == 0 && send_lock == NOBODY -> printf("server %d: finds no message\n", s); rest() }
	// One commit records token and attempt before the handler runs. It fails if the transaction has ended.
	// code: turns.(*server).claim
	:: d_step { step(CLAIMS) && row_lock == s ->
		row_lock = NOBODY; row = RUNNING; token = turn[s]; owner = (node[s] -> s : NOBODY);
		forget_interrupt();
#ifndef ATTEMPT_AFTER
		attempt = (attempt > ATTEMPTS -> attempt : attempt + 1);
#endif
		printf("server %d: turn %d takes messages %d\n", s, turn[s], taken[s]); phase[s] = CLAIMED }
	:: d_step { step(CLAIMS) && row_lock != s -> leave(s) }
	// The answer of a commit can be lost.
	:: d_step { step(CLAIMED) && faults > 0 -> faults--; printf("fault: server %d gets no answer for turn %d\n", s, turn[s]); leave(s) }
#ifndef NO_ORPHANS
	// code: turns/schema/serve.sql pglatch_turns.orphans
	:: d_step { step(RESTS) && row == RUNNING && owner == s && free_row -> printf("server %d: finds a turn that it does not run\n", s); row = READY; owner = NOBODY; forget_interrupt() }
#endif
	// code: turns/schema/serve.sql pglatch_turns.reclaim
	:: d_step { step(RESTS) && row == RUNNING && owner == NOBODY && free_row -> printf("server %d: the node of the running turn is gone\n", s); row = READY; forget_interrupt() }
	:: d_step { step(RESTS) && !node[s] -> node[s] = true; printf("server %d: joins again\n", s) }

	// The turn needs the mutex of the entity. If another has it, the attempt does not count.
	// code: turns/schema/serve.sql pglatch_turns.give_back
#ifdef NO_MUTEX
	:: d_step { step(CLAIMED) && attempt <= ATTEMPTS ->
#else
	:: d_step { step(CLAIMED) && attempt <= ATTEMPTS && mutex == NOBODY -> mutex = s;
#endif
		phase[s] = RUNS; printf("server %d: runs turn %d\n", s, turn[s]);
		// Turns overlap only if one of the servers has lost the session with its mutex, and has not noticed it.
		assert(!(active(0) && active(1))) }
	:: d_step { step(CLAIMED) && mutex != NOBODY && attempt <= ATTEMPTS && free_row ->
		if
		:: current -> attempt = (attempt > 0 -> attempt - 1 : 0); rest()
		:: else
		fi;
		leave(s) }

	// code: turns.(*Turn).More
	:: d_step { step(RUNS) && !poisoned && behind(highest(taken[s])) -> taken[s] = taken[s] | behind(highest(taken[s])); printf("server %d: takes more, and has messages %d\n", s, taken[s]) }
	:: d_step { step(RUNS) && poisoned -> printf("server %d: its handler kills the process\n", s); die(s) }
	// code: turns.(*server).drain
	:: d_step { step(RUNS) && !poisoned && !node[s] -> printf("server %d: notices that its node is lost, and ends turn %d\n", s, turn[s]); leave(s) }
	// A turn fails: because of its handler, or because the server has noticed that the mutex is lost. After the last attempt its messages are dead.
	// code: turns/schema/serve.sql pglatch_turns.fail
	:: d_step { (step(RUNS) && !poisoned || step(CLAIMED) && attempt > ATTEMPTS) && free_row ->
#ifdef ATTEMPT_AFTER
		attempt++;
#endif
		if
		:: current && attempt >= ATTEMPTS && (taken[s] & waiting) == taken[s] ->
			printf("server %d: messages %d are dead\n", s, taken[s]);
			dead = dead | taken[s]; end_all(taken[s]); attempt = 0; rest()
		:: current && attempt < ATTEMPTS -> printf("server %d: turn %d fails\n", s, turn[s]); rest()
		:: else -> printf("server %d: turn %d is stale\n", s, turn[s])
		fi;
		leave(s) }
	// code: turns/schema/serve.sql pglatch_turns.interrupted
	:: d_step { step(RUNS) && interrupt && owner == s && token == turn[s] && free_row && !poisoned ->
		printf("server %d: turn %d is interrupted\n", s, turn[s]); assert(turn[s] == hit); rest(); leave(s) }

	// The commit checks the token under the lock of the row.
	// code: turns/schema/serve.sql pglatch_turns.finish
	:: d_step { step(RUNS) && !poisoned && free_row && current && (taken[s] & waiting) == taken[s] ->
#ifndef NO_ROW_LOCK
		row_lock = s;
#endif
		if
		:: send_lock == NOBODY -> send_lock = server_of(s)
		:: else
		fi;
		phase[s] = CHECKED; printf("server %d: turn %d is the current one\n", s, turn[s]) }
	:: d_step { step(RUNS) && !poisoned && free_row && !(current && (taken[s] & waiting) == taken[s]) -> printf("server %d: turn %d is stale\n", s, turn[s]); leave(s) }
	// code: turns.(*Turn).Commit
	:: d_step { step(CHECKED) && has_row ->
		printf("server %d: turn %d commits messages %d\n", s, turn[s], taken[s]);
		assert(row == RUNNING && token == turn[s]); // no later turn has begun
#ifdef IGNORE_RETRY
		after = highest(taken[s]);
#else
		// A retried message can be before the last one that is deleted.
		after = (between -> lowest(between) - 1 : highest(taken[s]));
#endif
#ifdef DELETE_RANGE
		assert((waiting & ~behind(highest(taken[s])) & ~taken[s]) == 0); // the handler had all messages that are deleted
#endif
		end_all(taken[s]); attempt = 0; rest(); leave(s) }
	:: d_step { step(CHECKED) && !has_row -> printf("server %d: the transaction of turn %d has ended\n", s, turn[s]); leave(s) }
	od
}

// PostgreSQL ends what belongs to a process that is stopped.
proctype Store() {
end_store:	do
#ifndef NO_LEASE
	// code: internal/pgsession.Settings
	:: d_step { stopped && (node[0] || mutex == 0) -> printf("store: ends the sessions of server 0\n"); leave_node(0);
		if
		:: mutex == 0 -> lose_mutex(0)
		:: else
		fi }
#endif
#ifndef NO_TRANSACTION_LIMIT
	// code: turns.(*Turn).guard
	// code: turns/schema/send.sql pglatch_turns.limit_idle
	:: d_step { stopped && row_lock == 0 -> printf("store: ends the idle transaction of server 0\n"); row_lock = NOBODY; unlock(send_lock, server_of(0)) }
#endif
	od
}

proctype Faults() {
	do
	:: d_step { faults > 0 && !stopped && phase[0] != RESTS -> faults--; stopped = true; printf("fault: SIGSTOP for server 0\n") }
	:: d_step { stopped -> stopped = false; printf("fault: server 0 continues\n") }
	:: d_step { faults > 0 && phase[0] != RESTS && !stopped -> faults--; printf("fault: kill -9 of server 0\n"); die(0) }
	:: d_step { faults > 0 && node[0] && owner == 0 -> faults--; printf("fault: the session with the lock of node 0 is terminated\n"); leave_node(0) }
	:: d_step { faults > 0 && mutex == 0 -> faults--; printf("fault: the session with the mutex of server 0 is terminated\n"); lose_mutex(0) }
	// code: turns/schema/serve.sql pglatch_turns.interrupt
	:: d_step { interrupts > 0 && row == RUNNING && free_row -> interrupts--; interrupt = true; hit = token; printf("user: interrupts turn %d\n", token) }
	// code: turns/schema/serve.sql pglatch_turns.retry_dead
	:: d_step { retries > 0 && dead != 0 && send_lock == NOBODY && free_row ->
		retries--; printf("operator: retries message %d\n", lowest(dead));
		waiting = waiting | bit_of(lowest(dead)); retried = retried | bit_of(lowest(dead));
		if
		:: row == NONE -> row = READY; after = lowest(dead) - 1
		:: row != NONE && after >= lowest(dead) -> after = lowest(dead) - 1
		:: else
		fi;
		woken = true; dead = dead & ~bit_of(lowest(dead)) }
	:: d_step { awake -> awake = false }
	:: break
	od
}

init {
	atomic {
		sending[0] = IDLE; sending[1] = IDLE; phase[0] = RESTS; phase[1] = RESTS; row = NONE;
		run Sender(0); run Sender(1); run Server(0); run Server(1); run Store(); run Faults()
	}
}

ltl ended { [] ((waiting & 2) -> <> !(waiting & 2)) && [] ((waiting & 4) -> <> !(waiting & 4)) }
