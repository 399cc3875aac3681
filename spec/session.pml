// The session lock: one lock, CLIENTS clients, and the server with its queue. README.md explains how to read this.
//
// check faults: two clients never both believe that they hold, and nothing is left behind
//   small: -DCLIENTS=2 -DFAULTS=2 -DCANCELS=1 -DPROMPT
//   large: -DCLIENTS=2 -DFAULTS=3 -DCANCELS=2 -DPROMPT
// check slow: the same, while messages and processes take any time
//   small: -DCLIENTS=2 -DFAULTS=0 -DCANCELS=0
//   large: -DCLIENTS=2 -DFAULTS=1 -DCANCELS=1
// check cancels: the same, while requests give up and cancel requests hit the wrong statement
//   small: -DCLIENTS=2 -DFAULTS=0 -DCANCELS=3 -DPROMPT
//   large: -DCLIENTS=2 -DFAULTS=0 -DCANCELS=2
// check drift: the same, while the clock of client 0 is slow
//   small: -DCLIENTS=2 -DFAULTS=2 -DCANCELS=0 -DPROMPT -DDRIFT
//   large: -DCLIENTS=2 -DFAULTS=0 -DCANCELS=0 -DDRIFT
// check three: the same, for three clients
//   small: -DCLIENTS=3 -DFAULTS=1 -DCANCELS=0 -DPROMPT
//   large: -DCLIENTS=3 -DFAULTS=2 -DCANCELS=1 -DPROMPT
// check kept: without faults, and with answers in time, no lock is lost
//   small: -DCLIENTS=2 -DFAULTS=0 -DCANCELS=1 -DPROMPT
//   large: -DCLIENTS=3 -DFAULTS=0 -DCANCELS=2 -DPROMPT
// live served: a client that waits gets the lock, unless it is stopped
//   small: -DCLIENTS=2 -DFAULTS=1 -DCANCELS=1 -DPROMPT
//   large: -DCLIENTS=2 -DFAULTS=2 -DCANCELS=1 -DPROMPT

// Session c is the one that client c uses. Session CLIENTS + c is one that it gave up, and that the server still has.
#define SESSIONS (2 * CLIENTS)
#define NOBODY 15

// The server ends a session after T ticks without a statement. Where clocks differ, the client's deadline comes one tick
// earlier. The client gives up a session that does not answer for BOUND ticks.
#ifdef DRIFT
#define T 3
#else
#define T 2
#endif
#if defined(DRIFT) && !defined(NO_MARGIN)
#define TRUST (T - 1)
#else
#define TRUST T
#endif
#define BOUND 1

mtype:statement = { TRY, WAIT, UNLOCK, PING, OWN, REST };
mtype:answer = { GRANTED, REFUSED, RESOLVED, DONE, NOT_HELD, ERROR };
mtype:phase = { OUT, IDLE, TRYING, WAITING, RESTING, ASKING_TRY, ASKING_UNLOCK, HOLDING, PINGING, UNLOCKING };

// The server.
bool alive[SESSIONS], waiting[SESSIONS];
byte owner = NOBODY;       // the session that has the lock
byte count[SESSIONS];      // how often it has it: PostgreSQL counts
byte idle[SESSIONS];       // ticks until the server ends the session
byte queue[SESSIONS];      // the waiting sessions, first come, first served
byte queued;

// The network. A silent connection delivers nothing more.
mtype:statement sent[SESSIONS]; // 0 = none is under way
mtype:answer reply[SESSIONS];
bool cancel[SESSIONS];          // a cancel request is on its way to the session's server process
bool closed[SESSIONS], silent[SESSIONS];

// The clients.
mtype:phase phase[CLIENTS];
byte trust[CLIENTS];  // ticks until the deadline; 0 without a lock
byte age[CLIENTS];    // ticks since the outstanding statement was sent
bool want[CLIENTS], pinged[CLIENTS], stopped[CLIENTS], terminated[CLIENTS];
byte faults = FAULTS, cancels = CANCELS; // how many may still come
bool tick;            // changes with each tick
byte i, j;            // of loops inside one step

#ifdef NO_CLOCK_CHECK
#define believes(c) (phase[c] == HOLDING || phase[c] == PINGING)
#else
// code: internal/pgsession.(*Session).state
#define believes(c) ((phase[c] == HOLDING || phase[c] == PINGING) && trust[c] > 0)
#endif

// The documented window: somebody terminated the session, and its client has not received the notice.
#define exclusive(a, b) (!(believes(a) && believes(b)) || terminated[a] || terminated[b])

inline check() {
	assert(exclusive(0, 1));
#if CLIENTS > 2
	assert(exclusive(0, 2)); assert(exclusive(1, 2));
#endif
}

// next gives a free lock to the first in the queue, as PostgreSQL does at each release.
inline next() {
	if
	:: owner == NOBODY && queued > 0 ->
		owner = queue[0]; count[owner] = 1; queued--;
		for (i : 0 .. SESSIONS - 2) { queue[i] = queue[i + 1] }
		queue[SESSIONS - 1] = 0; i = 0
	:: else
	fi
}

inline leave_queue(x) {
	j = 0;
	for (i : 0 .. SESSIONS - 1) {
		if
		:: i >= queued || queue[i] != x -> queue[j] = queue[i]; j++
		:: else
		fi
	}
	if
	:: j < SESSIONS -> queue[SESSIONS - 1] = 0; queued--
	:: else
	fi;
	i = 0; j = 0
}

inline end_session(x) {
	leave_queue(x);
	alive[x] = false; waiting[x] = false; cancel[x] = false; silent[x] = (x < CLIENTS && silent[x]); closed[x] = false;
	sent[x] = 0; count[x] = 0; idle[x] = 0;
	if
	:: owner == x -> owner = NOBODY; next()
	:: else
	fi
}

// try_lock is pg_try_advisory_lock: it also grants a session what the session has.
inline try_lock(yes, no) {
	if
	:: owner == NOBODY || owner == s -> owner = s; count[s]++; answer = yes
	:: else -> answer = no
	fi
}

inline unlock_one(yes, no) {
	if
	:: owner == s ->
		count[s]--; answer = yes;
		if
		:: count[s] == 0 -> owner = NOBODY; next()
		:: else
		fi
	:: else -> answer = no
	fi
}

inline respond() {
	reply[s] = (closed[s] -> 0 : answer);
	answer = 0; sent[s] = 0; waiting[s] = false; idle[s] = T
}

#define runs(statement) (alive[s] && !silent[s] && sent[s] == statement && !waiting[s])

// A server process executes the statements of one session.
proctype Backend(byte s) {
	mtype:answer answer;
	do
	// code: internal/pgsession.shape.try
	:: d_step { runs(TRY) -> try_lock(GRANTED, REFUSED); printf("server: session %d tries: %e\n", s, answer); respond() }
	// code: internal/pgsession.waitSQL
	:: d_step { runs(WAIT) ->
		printf("server: session %d waits\n", s);
		waiting[s] = true; queue[queued] = s; queued++; next() }
	// code: internal/pgsession.shape.unlock
	:: d_step { runs(UNLOCK) -> unlock_one(DONE, NOT_HELD); printf("server: session %d unlocks: %e\n", s, answer); respond() }
	:: d_step { runs(PING) -> answer = DONE; printf("server: session %d answers a ping\n", s); respond() }
	// code: internal/pgsession.(*Session).own
	:: d_step { runs(OWN) -> answer = (owner == s -> GRANTED : NOT_HELD); printf("server: session %d asks what it has: %e\n", s, answer); respond() }
	// code: internal/pgsession.(*Session).unlockRest
	:: d_step { runs(REST) -> unlock_one(DONE, NOT_HELD); printf("server: session %d gives one count back: %e\n", s, answer); respond() }

	// A cancel request hits a statement, whichever runs now. Its effect may be there (PostgreSQL bug #17686), or not.
	:: d_step { runs(TRY) && cancel[s] -> cancel[s] = false; try_lock(GRANTED, REFUSED); answer = ERROR;
		printf("server: a cancel request hits the try of session %d, which has the lock %d times\n", s, count[s]); respond() }
	:: d_step { (runs(UNLOCK) || runs(REST)) && cancel[s] -> cancel[s] = false; unlock_one(DONE, NOT_HELD); answer = ERROR;
		printf("server: a cancel request hits the unlock of session %d, which has the lock %d times\n", s, count[s]); respond() }
	:: d_step { alive[s] && !silent[s] && sent[s] != 0 && !waiting[s] && cancel[s] -> cancel[s] = false; answer = ERROR;
		printf("server: a cancel request hits %e of session %d before it had an effect\n", sent[s], s); respond() }

	// The wait was granted.
	:: d_step { waiting[s] && owner == s -> answer = GRANTED; printf("server: the wait of session %d is granted\n", s); respond() }
	// The wait step is over, or a cancel request hits the wait. The handler tries the lock: the session can have it twice
	// then, if it was granted at this instant.
	// code: internal/pgsession.waitSQL
	:: d_step { waiting[s] && cancels > 0 -> cancels--; leave_queue(s); try_lock(RESOLVED, REFUSED);
		printf("server: the wait step of session %d is over: %e, it has the lock %d times\n", s, answer, count[s]); respond() }
	:: d_step { waiting[s] && cancel[s] -> cancel[s] = false; leave_queue(s); try_lock(RESOLVED, REFUSED);
		printf("server: a cancel request ends the wait of session %d: %e, it has the lock %d times\n", s, answer, count[s]); respond() }
	:: d_step { waiting[s] && cancel[s] -> cancel[s] = false; leave_queue(s); answer = ERROR; // the second signal of the request met no handler
		printf("server: a cancel request fails the wait of session %d, which has the lock %d times\n", s, count[s]); respond() }
	// A cancel request that arrives between two statements has no effect.
	:: d_step { cancel[s] && !waiting[s] -> cancel[s] = false }

	// The server notices that its client has closed the socket; during a wait by client_connection_check_interval.
	// code: internal/pgsession.Settings
	:: d_step { alive[s] && !silent[s] && closed[s] && (sent[s] == 0 || waiting[s]) ->
		printf("server: session %d ends, its client has closed it\n", s); end_session(s) }
#ifndef NO_SERVER_LEASE
	// idle_session_timeout, which may fire late.
	// code: internal/pgsession.Settings
	:: d_step { alive[s] && !waiting[s] && idle[s] == 0 ->
		printf("server: session %d ends, it was idle for T\n", s); end_session(s) }
#endif
	od
}

#define ask(statement, to) sent[c] = statement; phase[c] = to
#define step(p) (phase[c] == p && !stopped[c])
#define hears(p, a) (phase[c] == p && !stopped[c] && !silent[c] && reply[c] == a)

// answered removes the answer.
inline answered() { reply[c] = 0; age[c] = 0 }

// prolong moves the deadline, after an answer that is not an error.
// code: internal/pgsession.(*Session).settle
inline prolong() {
#ifdef LEASE_FROM_ANSWER
	trust[c] = TRUST
#else
	trust[c] = (TRUST > age[c] -> TRUST - age[c] : 0)
#endif
}

// held is the lock in the client's hand.
// code: internal/locktable.(*Key).grant
inline held() {
	prolong(); answered();
	phase[c] = HOLDING; want[c] = false;
	printf("client %d: has the lock, until its deadline in %d\n", c, trust[c]);
	assert(!alive[c] || owner == c && count[c] == 1);
	check()
}

// rest is a session without a lock. The server must agree.
inline rest() {
	answered();
	phase[c] = IDLE; want[c] = false;
	printf("client %d: has no lock, and keeps its session\n", c);
	assert(!alive[c] || owner != c)
}

// lose gives the session up, for ever, and closes the socket.
// code: internal/pgsession.(*Session).lose
// code: internal/locktable.(*Table).end
inline lose() {
	printf("client %d: gives its session up in phase %e, deadline in %d\n", c, phase[c], trust[c]);
#if defined(PROMPT) && FAULTS == 0
	assert(phase[c] != HOLDING && phase[c] != PINGING);
#endif
	closed[c] = alive[c]; idle[c] = (alive[c] -> T : 0); answered(); phase[c] = OUT; trust[c] = 0; pinged[c] = false; terminated[c] = false
}

// A new session takes the place of the old one, which becomes session CLIENTS + c if the server still has it.
inline connect() {
	j = CLIENTS + c;
	alive[j] = alive[c]; waiting[j] = waiting[c]; count[j] = count[c]; idle[j] = idle[c];
	sent[j] = sent[c]; cancel[j] = cancel[c]; closed[j] = closed[c]; silent[j] = silent[c] && alive[c];
	owner = (owner == c -> j : owner);
	for (i : 0 .. SESSIONS - 1) { queue[i] = (i < queued && queue[i] == c -> j : queue[i]) }
	i = 0; j = 0;
	alive[c] = true; waiting[c] = false; count[c] = 0; idle[c] = T;
	sent[c] = 0; cancel[c] = false; closed[c] = false; silent[c] = false;
	phase[c] = IDLE;
	printf("client %d: connects\n", c)
}

proctype Client(byte c) {
	do
	// code: internal/pgsession.(*Pool).Acquire
	:: d_step { step(OUT) && !alive[CLIENTS + c] -> connect() }
	// code: internal/locktable.(*Key).ask
	:: d_step { step(IDLE) && sent[c] == 0 && reply[c] == 0 -> want[c] = true; ask(TRY, TRYING); printf("client %d: tries\n", c) }

	// code: internal/locktable.(*Op).answer
	:: d_step { hears(TRYING, GRANTED) -> held() }
	:: d_step { hears(TRYING, REFUSED) -> answered(); ask(WAIT, WAITING); printf("client %d: waits\n", c) }
	// code: internal/pgsession.(*Session).resolveBatch
#ifdef NO_QUESTION_AFTER_TRY
	:: d_step { hears(TRYING, ERROR) -> rest() }
#else
	:: d_step { hears(TRYING, ERROR) -> answered(); ask(OWN, ASKING_TRY); printf("client %d: asks whether its try took the lock\n", c) }
#endif
	:: d_step { hears(ASKING_TRY, GRANTED) -> held() }
	:: d_step { hears(ASKING_TRY, NOT_HELD) -> answered(); ask(TRY, TRYING) }
	:: d_step { hears(ASKING_TRY, ERROR) -> answered(); ask(OWN, ASKING_TRY) }

	// The caller gives up. The cancel request may arrive late, during another statement, or never.
	// code: internal/locktable.(*Table).Withdraw
	// code: internal/pgsession.(*Session).cancelFrom
	:: d_step { step(WAITING) && want[c] && cancels > 0 ->
		cancels--; want[c] = false; cancel[c] = alive[c]; printf("client %d: gives up, and sends a cancel request\n", c) }
	// code: internal/pgsession.(*Session).Wait
	:: d_step { hears(WAITING, GRANTED) && want[c] -> held() }
	:: d_step { hears(WAITING, GRANTED) && !want[c] -> answered(); ask(UNLOCK, UNLOCKING); printf("client %d: no longer wants what it got\n", c) }
	:: d_step { hears(WAITING, REFUSED) && want[c] -> answered(); ask(WAIT, WAITING) }
	:: d_step { hears(WAITING, REFUSED) && !want[c] -> rest() }
#ifdef NO_REST
	:: d_step { hears(WAITING, RESOLVED) -> rest() }
#else
	:: d_step { hears(WAITING, RESOLVED) -> answered(); ask(REST, RESTING); printf("client %d: gives back what the wait may have left\n", c) }
#endif
#ifdef NO_REST_AFTER_ERROR
	:: d_step { hears(WAITING, ERROR) -> rest() }
#else
	:: d_step { hears(WAITING, ERROR) -> answered(); ask(REST, RESTING); printf("client %d: gives back what the wait may have left\n", c) }
#endif
	// code: internal/pgsession.(*Session).giveBack
#ifdef REST_ONCE
	:: d_step { hears(RESTING, DONE) -> rest() }
#else
	:: d_step { hears(RESTING, DONE) -> answered(); ask(REST, RESTING) }
#endif
	:: d_step { hears(RESTING, ERROR) -> answered(); ask(REST, RESTING) }
	:: d_step { hears(RESTING, NOT_HELD) && want[c] -> answered(); ask(WAIT, WAITING) }
	:: d_step { hears(RESTING, NOT_HELD) && !want[c] -> rest() }

#ifndef NO_PING
	// code: internal/pgsession.(*Session).ping
	:: d_step { step(HOLDING) && trust[c] == 1 && !pinged[c] -> pinged[c] = true; ask(PING, PINGING); printf("client %d: pings\n", c) }
#endif
	:: d_step { hears(PINGING, DONE) -> prolong(); answered(); phase[c] = HOLDING; printf("client %d: its deadline is in %d\n", c, trust[c]); check() }
	:: d_step { hears(PINGING, ERROR) -> answered(); ask(PING, PINGING) }

	// code: internal/locktable.(*Key).giveBack
	:: d_step { step(HOLDING) && trust[c] > 0 -> trust[c] = 0; pinged[c] = false; ask(UNLOCK, UNLOCKING); printf("client %d: releases\n", c) }
	:: d_step { hears(UNLOCKING, DONE) -> rest() }
	// code: internal/pgsession.(*batch).note
	:: d_step { hears(UNLOCKING, NOT_HELD) -> lose() }
	// code: internal/pgsession.(*Session).resolveBatch
#ifdef NO_QUESTION_AFTER_UNLOCK
	:: d_step { hears(UNLOCKING, ERROR) -> rest() }
#else
	:: d_step { hears(UNLOCKING, ERROR) -> answered(); ask(OWN, ASKING_UNLOCK); printf("client %d: asks whether its unlock released the lock\n", c) }
#endif
	:: d_step { hears(ASKING_UNLOCK, GRANTED) -> answered(); ask(UNLOCK, UNLOCKING) }
	:: d_step { hears(ASKING_UNLOCK, NOT_HELD) -> rest() }
	:: d_step { hears(ASKING_UNLOCK, ERROR) -> answered(); ask(OWN, ASKING_UNLOCK) }

	// The notice of the server, or the closed socket.
	// code: internal/pgsession.(*Session).listen
	:: d_step { !step(OUT) && !stopped[c] && !alive[c] && !silent[c] -> lose() }
	// The deadline of a holder.
	// code: advisory.(*conn).expire
	:: d_step { (step(HOLDING) || step(PINGING)) && trust[c] == 0 -> lose() }
	// A statement without an answer.
	// code: internal/pgsession.(*Session).broken
#ifdef REUSE_AFTER_TIMEOUT
	:: d_step { step(TRYING) && age[c] >= BOUND -> rest() }
	:: d_step { step(IDLE) && silent[c] -> lose() }
#else
	:: d_step { step(TRYING) && age[c] >= BOUND -> lose() }
#endif
	:: d_step { !step(TRYING) && !stopped[c] && age[c] >= BOUND -> lose() }
	od
}

#define asking(c) (phase[c] != OUT && phase[c] != IDLE && phase[c] != HOLDING)
#ifdef PROMPT
// Time passes only while a message or a step of a process is not due: a lease is long compared with them.
#define due(x) (alive[x] && !silent[x] && (sent[x] != 0 && !waiting[x] || waiting[x] && owner == x || closed[x]) || alive[x] && !waiting[x] && idle[x] == 0 && LEASES)
#ifdef NO_PING
#define ping_due(c) false
#else
#define ping_due(c) (trust[c] == 1)
#endif
#define busy(c) (due(c) || due(CLIENTS + c) || !stopped[c] && \
	(phase[c] == OUT && !alive[CLIENTS + c] || phase[c] == IDLE || phase[c] == HOLDING && (pinged[c] || ping_due(c)) || \
	!silent[c] && (reply[c] != 0 || phase[c] != OUT && !alive[c])))
#ifdef NO_SERVER_LEASE
#define LEASES false
#else
#define LEASES true
#endif
#else
#define busy(c) false
#endif

inline tick_server(x) {
	if
	:: alive[x] && !waiting[x] && idle[x] > 0 && (silent[x] || !closed[x]) -> idle[x]-- // one that is closed ends without its lease
	:: else
	fi
}

// The bound of a wait begins when its wait step is over.
inline tick_client(x) {
	if
	:: trust[x] > 0 -> trust[x]--
	:: else
	fi;
	if
	:: asking(x) && age[x] < T && (phase[x] != WAITING || silent[x] || reply[x] != 0) -> age[x]++
	:: else
	fi
}

inline tick_others() {
	for (i : 0 .. SESSIONS - 1) { tick_server(i) }
	for (i : 1 .. CLIENTS - 1) { tick_client(i) }
	i = 0
}

#ifdef DRIFT
byte steady = T; // ticks since the clock of client 0 missed one
#endif

// Time. All clocks move together, and those of clients while a process is stopped, too.
// code: internal/boottime.Now
proctype Clock() {
	do
#if CLIENTS > 2
	:: d_step { !busy(0) && !busy(1) && !busy(2) ->
#else
	:: d_step { !busy(0) && !busy(1) ->
#endif
#ifdef LIVE
		tick = !tick;
#endif
		tick_others(); tick_client(0);
#ifdef DRIFT
		steady = (steady < T -> steady + 1 : T);
#endif
		printf("clock: a tick; deadlines in %d and %d\n", trust[0], trust[1]);
		check() }
#ifdef DRIFT
	:: d_step { steady >= T -> steady = 0; tick_others(); printf("clock: a tick, which client 0 misses\n"); check() }
#endif
	od
}

#define stop(c) \
	:: d_step { faults > 0 && !stopped[c] -> faults--; stopped[c] = true; printf("fault: SIGSTOP for client %d\n", c) } \
	:: d_step { stopped[c] -> stopped[c] = false; printf("fault: client %d continues\n", c); check() }
#define cut(c) \
	:: d_step { faults > 0 && alive[c] && phase[c] != OUT && !silent[c] -> faults--; silent[c] = true; printf("fault: the network of client %d goes silent\n", c) } \
	:: d_step { faults > 0 && alive[c] && phase[c] != OUT -> faults--; terminated[c] = true; printf("fault: the session of client %d is terminated\n", c); end_session(c) }
#define hit(c) \
	:: d_step { cancels > 0 && alive[c] && phase[c] != OUT && !cancel[c] -> cancels--; cancel[c] = true; printf("fault: pg_cancel_backend for client %d\n", c) }

// Faults, at any step. When this process ends, nothing changes any more: a stopped client stays stopped.
proctype Faults() {
	do
	stop(0)
	cut(0)
	hit(0)
	stop(1)
	cut(1)
	hit(1)
	:: break
	od
}

init {
	atomic {
		for (i : 0 .. CLIENTS - 1) { phase[i] = OUT; run Client(i) }
		for (i : 0 .. SESSIONS - 1) { run Backend(i) }
		i = 0;
		run Clock();
		run Faults()
	}
}

// Time goes on: clients do not take infinitely many steps in one tick.
ltl served { ([] <> tick && [] <> !tick) -> [] (want[1] -> <> (!want[1] || stopped[1])) }
