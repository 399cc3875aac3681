// The election on PostgreSQL: candidates, terms, the barrier of guarded transactions. README.md explains how to read this.
//
// check guarded: no guarded transaction commits after a later term began; terms rise; work of two terms does not overlap
//   small: -DCANDIDATES=2 -DTERMS=2 -DFAULTS=2 -DWRITES=1
//   large: -DCANDIDATES=2 -DTERMS=3 -DFAULTS=3 -DWRITES=2
// check three: the same, for three candidates
//   small: -DCANDIDATES=3 -DTERMS=2 -DFAULTS=1 -DWRITES=1
//   large: -DCANDIDATES=3 -DTERMS=3 -DFAULTS=2 -DWRITES=2
// live led: while somebody can lead, somebody leads some day, also if a guarded statement never ends
//   small: -DCANDIDATES=2 -DTERMS=3 -DFAULTS=1 -DWRITES=1
//   large: -DCANDIDATES=2 -DTERMS=4 -DFAULTS=2 -DWRITES=2

#define NOBODY 7

mtype:phase = { OUT, FOLLOWING, MAIN, AWAITING_SESSIONS, AWAITING_GUARDS, ENDING_GUARDS, COUNTING, SETTLING, LEADING, RELEASING };
mtype:write = { NONE, CLAIMED, SHARING, LOOKED, GUARDED };

// The server's locks. A session that ends releases them in any order.
byte main_lock = NOBODY;         // the candidate whose session has the election lock
byte incarnation[CANDIDATES];    // the incarnation that a candidate's session has; 0 = none
bool shares[CANDIDATES];         // the transaction of a candidate's writer shares the barrier
bool wants_alone[CANDIDATES];    // a candidate waits for the barrier: a try to share it fails
bool alive[CANDIDATES], ending[CANDIDATES];

// The row that counts terms. A promotion raises the era, and can lose the last commits.
byte era = 1, n;
byte replica;                    // n on the standby
byte disk;                       // n that a crash leaves
byte incarnations;               // counted up by candidates

// The candidates and the writers of their terms.
mtype:phase phase[CANDIDATES];
byte mine[CANDIDATES];           // the incarnation of the last leadership: what a guard asks for
byte term[CANDIDATES];           // which leadership that was, in the order in which they began
bool stopped[CANDIDATES], settled[CANDIDATES];
bool lapsed[CANDIDATES];         // the server ended the session after its lease: the leader's own deadline came before
bool window[CANDIDATES];         // the process was stopped before it received the notice that its session was terminated
mtype:write write[CANDIDATES];
byte claim[CANDIDATES], of_term[CANDIDATES];
bool hangs[CANDIDATES];          // the transaction is in a statement that never ends

// Bounds, and what only the properties need.
byte faults = FAULTS, writes = WRITES;
byte begun, highest;             // leaderships so far; the greatest term: 8 * era + n
byte i;

#define works(c) (phase[c] == LEADING && !stopped[c] && !lapsed[c])
#define overlap(a, b) (works(a) && works(b) && !window[a] && !window[b])
inline check() {
	assert(!overlap(0, 1));
#if CANDIDATES > 2
	assert(!overlap(0, 2)); assert(!overlap(1, 2));
#endif
}

#if CANDIDATES > 2
#define anybody(p) (p(0) || p(1) || p(2))
#else
#define anybody(p) (p(0) || p(1))
#endif
#define waits_alone(x) wants_alone[x]
#define has_claimed(x) (incarnation[x] != 0 && incarnation[x] == claim[c])
#define other_session(x) (x != c && incarnation[x] != 0)
#define sharing(x) shares[x]

#ifdef COUNT_ELSEWHERE
#define counts_elsewhere (phase[c] == COUNTING)
#else
#define counts_elsewhere false
#endif
#define step(p) (phase[c] == p && !stopped[c] && alive[c] && !ending[c])

inline end_transaction(x) { write[x] = NONE; claim[x] = 0; of_term[x] = 0; shares[x] = false; hangs[x] = false }

proctype Candidate(byte c) {
end:	do
	// code: leader/postgres.(*Backend).openSession
	:: d_step { phase[c] == OUT && !stopped[c] && !alive[c] && begun < TERMS ->
		alive[c] = true; lapsed[c] = false; window[c] = false; phase[c] = FOLLOWING; printf("candidate %d: connects\n", c) }
	// code: leader/postgres.(*Backend).takeLock
	:: d_step { step(FOLLOWING) && main_lock == NOBODY && begun < TERMS ->
		main_lock = c; phase[c] = MAIN; printf("candidate %d: has the election lock\n", c) }
	// code: leader/postgres.(*Backend).takeIncarnation
	:: d_step { step(MAIN) -> incarnations++; incarnation[c] = incarnations; phase[c] = AWAITING_SESSIONS;
		printf("candidate %d: takes incarnation %d\n", c, incarnations) }
	// code: leader/postgres.(*Backend).awaitSessions
#ifdef NO_WAIT_FOR_SESSIONS
	:: d_step { step(AWAITING_SESSIONS) -> phase[c] = AWAITING_GUARDS }
#else
	:: d_step { step(AWAITING_SESSIONS) && !anybody(other_session) -> phase[c] = AWAITING_GUARDS; printf("candidate %d: no other session has an incarnation\n", c) }
#endif
	// code: leader/postgres.(*Backend).awaitGuards
#ifdef NO_WAIT_FOR_GUARDS
	:: d_step { step(AWAITING_GUARDS) -> phase[c] = COUNTING }
#else
	:: d_step { step(AWAITING_GUARDS) && !anybody(sharing) -> wants_alone[c] = false; phase[c] = COUNTING; printf("candidate %d: is alone at the barrier\n", c) }
	// A wait step begins, and ends: between two of them, transactions get the barrier, and are refused.
	:: d_step { step(AWAITING_GUARDS) && anybody(sharing) && !wants_alone[c] -> wants_alone[c] = true; printf("candidate %d: waits for the barrier\n", c) }
#ifndef NO_END_OF_GUARDS
	// code: leader/postgres.(*Backend).endLateGuards
	// code: leader/internal/pgguard.EndGuards
	:: d_step { step(AWAITING_GUARDS) && wants_alone[c] && anybody(sharing) -> wants_alone[c] = false;
		printf("candidate %d: ends the guarded transactions that are left\n", c);
		for (i : 0 .. CANDIDATES - 1) {
			if
			:: shares[i] -> end_transaction(i)
			:: else
			fi
		}
		i = 0 }
#endif
#endif
	// The term is counted on the session of the locks. With it, the right to count would be gone.
	// code: leader/postgres.(*Backend).fence
#ifdef COUNT_ELSEWHERE
	:: d_step { phase[c] == COUNTING && !stopped[c] && begun < TERMS ->
#else
	:: d_step { step(COUNTING) && begun < TERMS ->
#endif
		n++; begun++;
#ifndef NO_DURABLE_TERM
		// code: internal/pgtable.Durable
		disk = n;
#endif
		assert(8 * era + n > highest); highest = 8 * era + n;
		mine[c] = incarnation[c]; term[c] = begun; settled[c] = false;
		phase[c] = SETTLING; printf("candidate %d: counts term %d.%d\n", c, era, n);
#ifdef NO_SETTLE_DELAY
		settled[c] = true
#endif
		}
	// code: leader.(*drive).settle
	:: d_step { step(SETTLING) && settled[c] -> phase[c] = LEADING; printf("candidate %d: leads\n", c); check() }
	// code: leader.(*drive).release
	:: d_step { step(LEADING) -> phase[c] = RELEASING; printf("candidate %d: gives leadership up\n", c) }
	// code: leader/postgres.(*Backend).unlock
	:: d_step { step(RELEASING) && incarnation[c] != 0 -> incarnation[c] = 0 }
	:: d_step { step(RELEASING) && incarnation[c] == 0 -> main_lock = (main_lock == c -> NOBODY : main_lock); phase[c] = FOLLOWING; printf("candidate %d: has released\n", c) }
	// The notice of the server, or the leader's own deadline.
	// code: leader.(*drive).lose
	:: d_step { phase[c] != OUT && !stopped[c] && (!alive[c] || ending[c]) && !counts_elsewhere -> phase[c] = OUT; printf("candidate %d: its session is lost\n", c) }
	od
}

#define ready (!stopped[c])

// A transaction that the leader guards. It can begin late: its process was stopped.
proctype Writer(byte c) {
end:	do
	// code: leader/postgres.(*Backend).Bind
	:: d_step { write[c] == NONE && ready && (phase[c] == SETTLING || phase[c] == LEADING) && writes > 0 ->
		writes--; write[c] = CLAIMED; claim[c] = mine[c]; of_term[c] = term[c]; printf("writer %d: begins a transaction of leadership %d\n", c, term[c]) }
#ifdef NO_GUARD
	:: d_step { write[c] == CLAIMED && ready -> write[c] = GUARDED }
#else
#ifdef GUARD_LOOKS_FIRST
	:: d_step { write[c] == CLAIMED && ready && anybody(has_claimed) -> write[c] = LOOKED; printf("writer %d: the guard sees its incarnation\n", c) }
	:: d_step { write[c] == CLAIMED && ready && !anybody(has_claimed) -> end_transaction(c) }
	:: d_step { write[c] == LOOKED && ready && !anybody(waits_alone) -> shares[c] = true; write[c] = GUARDED }
	:: d_step { write[c] == LOOKED && ready && anybody(waits_alone) -> end_transaction(c) }
#else
	// code: leader/postgres.guardOf
#ifdef NO_BARRIER
	:: d_step { write[c] == CLAIMED && ready -> write[c] = SHARING }
#else
	:: d_step { write[c] == CLAIMED && ready && !anybody(waits_alone) -> shares[c] = true; write[c] = SHARING; printf("writer %d: the guard shares the barrier\n", c) }
	:: d_step { write[c] == CLAIMED && ready && anybody(waits_alone) -> printf("writer %d: the guard is refused, a candidate waits\n", c); end_transaction(c) }
#endif
#ifdef NO_INCARNATION_CHECK
	:: d_step { write[c] == SHARING && ready -> write[c] = GUARDED }
#else
	:: d_step { write[c] == SHARING && ready && anybody(has_claimed) -> write[c] = GUARDED; printf("writer %d: the guard sees its incarnation\n", c) }
	:: d_step { write[c] == SHARING && ready && !anybody(has_claimed) -> printf("writer %d: the guard is refused\n", c); end_transaction(c) }
#endif
#endif
#endif
	:: d_step { write[c] == GUARDED && ready && !hangs[c] ->
		printf("writer %d: commits in leadership %d\n", c, of_term[c]);
		assert(of_term[c] == begun); // no later term has begun
		end_transaction(c) }
	// A statement that never ends. PostgreSQL does not end it either: its client is alive.
	:: d_step { write[c] == GUARDED && faults > 0 && !hangs[c] -> faults--; hangs[c] = true; printf("fault: the transaction of writer %d hangs\n", c) }
	// The server ends a transaction whose client is stopped between statements.
	// code: leader/postgres.(*lockSession).guardArgs
	:: d_step { (write[c] == SHARING || write[c] == GUARDED) && stopped[c] && !hangs[c] ->
		printf("server: ends the idle transaction of writer %d\n", c); end_transaction(c) }
	od
}

inline release_main(x) {
	if
	:: main_lock == x -> main_lock = NOBODY
	:: else
	fi
}

// The server ends a session in steps.
proctype Backend(byte c) {
end:	do
#ifndef NO_LEASE
	// The lease of a leader that is stopped. Its own deadline has passed before: see session.pml.
	// code: internal/pgsession.Settings
	:: d_step { alive[c] && !ending[c] && stopped[c] -> ending[c] = true; lapsed[c] = true; wants_alone[c] = false; printf("server: the lease of candidate %d is over\n", c) }
#endif
	:: d_step { ending[c] && main_lock == c -> main_lock = NOBODY; printf("server: releases the election lock of candidate %d\n", c) }
	:: d_step { ending[c] && incarnation[c] != 0 -> incarnation[c] = 0; printf("server: releases the incarnation of candidate %d\n", c) }
	:: d_step { ending[c] && main_lock != c && incarnation[c] == 0 -> ending[c] = false; alive[c] = false }
	od
}

#define unnoticed(x) (phase[x] != OUT && !stopped[x] && (!alive[x] || ending[x]))

// A tick is longer than a notice takes to a process that runs. The delay of a new leader is a tick.
proctype Clock() {
end:	do
	:: d_step { !anybody(unnoticed) && (phase[0] == SETTLING && !settled[0] || phase[1] == SETTLING && !settled[1]
#if CANDIDATES > 2
		|| phase[2] == SETTLING && !settled[2]
#endif
		) ->
		for (i : 0 .. CANDIDATES - 1) { settled[i] = settled[i] || phase[i] == SETTLING }
		i = 0; printf("clock: a tick\n") }
	:: d_step { replica != n -> replica = n; printf("standby: has term %d.%d\n", era, n) }
	od
}

#define unnoticed_now(x) (phase[x] != OUT && !lapsed[x] && (!alive[x] || ending[x]))
#define may_fail(c) \
	:: d_step { faults > 0 && !stopped[c] -> faults--; stopped[c] = true; window[c] = window[c] || unnoticed_now(c); printf("fault: SIGSTOP for candidate %d\n", c) } \
	:: d_step { stopped[c] -> stopped[c] = false; printf("fault: candidate %d continues\n", c); check() } \
	:: d_step { faults > 0 && alive[c] && !ending[c] -> faults--; ending[c] = true; wants_alone[c] = false; window[c] = stopped[c]; \
		printf("fault: the session of candidate %d is terminated\n", c) }

inline all_sessions_end() {
	main_lock = NOBODY;
	for (i : 0 .. CANDIDATES - 1) {
		incarnation[i] = 0; wants_alone[i] = false; ending[i] = false;
		window[i] = window[i] || stopped[i] && alive[i];
		alive[i] = false; end_transaction(i)
	}
	i = 0
}

proctype Faults() {
end:	do
	may_fail(0)
	may_fail(1)
#if CANDIDATES > 2
	may_fail(2)
#endif
	:: d_step { faults > 0 -> faults--; all_sessions_end(); n = disk; printf("fault: the server crashes, and has term %d.%d\n", era, n) }
	// The standby may lack the last terms. Its timeline is higher, so the era rises.
	// code: internal/pgtable.NextTermSQL
	:: d_step { faults > 0 -> faults--; all_sessions_end(); n = replica; disk = n;
#ifndef NO_ERA
		era++;
#endif
		printf("fault: the standby is promoted, which has term %d of era %d\n", n, era) }
	:: break
	od
}

init {
	atomic {
		for (i : 0 .. CANDIDATES - 1) { phase[i] = OUT; write[i] = NONE; run Candidate(i); run Writer(i); run Backend(i) }
		i = 0;
		run Clock(); run Faults()
	}
}

#define leads(x) (phase[x] == LEADING && alive[x] && !ending[x])
#define one_leads (leads(0) || leads(1))
#define all_stopped (stopped[0] && stopped[1])
ltl led { [] <> (one_leads || begun == TERMS || all_stopped) }
