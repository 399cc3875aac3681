// Shards without a coordinator: three nodes, three shards. README.md explains how to read this.
//
// check owner: two nodes never work on one shard; no guarded transaction commits after a later term of its shard began
//   small: -DFAULTS=1 -DCHANGES=1 -DWRITES=1
//   large: -DFAULTS=2 -DCHANGES=2 -DWRITES=2
// live owned: again and again every shard has a node that works on it, also beside a member that hangs
//   small: -DFAULTS=1 -DCHANGES=0 -DWRITES=1
//   large: -DFAULTS=2 -DCHANGES=1 -DWRITES=1
// live still: moves end, and every shard has a node
//   small: -DFAULTS=0 -DCHANGES=1 -DWRITES=0 -DNO_HANG
//   large: -DFAULTS=1 -DCHANGES=2 -DWRITES=0 -DNO_HANG

#define NODES 3
#define SHARDS 3
#define NOBODY 7
#define bit(x) (1 << (x))
#define has(mask, x) (((mask) >> (x)) & 1)

mtype:write = { NONE, CLAIMED, GUARDED };

// The server: who has which lock. A node's session has its membership and its shards.
byte owner[SHARDS] = NOBODY;
bool alive[NODES];

// The nodes. Masks have a bit for each shard, or for each node.
byte works[NODES];               // shards that its work runs on
byte claims[NODES], gives[NODES];// what it decided, and has not done yet: the world may have changed meanwhile
byte left_out[NODES];            // members that it leaves out of the targets
bool draining[NODES], hung[NODES], stopped[NODES];
bool lapsed[NODES];              // the server ended the session after its lease: the node's own deadline came before
bool window[NODES];              // the node was stopped before it received the notice that its session was terminated
byte stray[NODES];               // locks of a claim that was cancelled: the node does not know whether it has them

// One transaction that is guarded by the term of shard 0.
mtype:write write = NONE;
byte writer;
bool later;                      // a later term of shard 0 has begun
bool hangs;

byte faults = FAULTS, changes = CHANGES, writes = WRITES;

#define worked(n, s) (has(works[n], s) && !stopped[n] && !lapsed[n] && !window[n])
#define one(s) (!(worked(0, s) && worked(1, s)) && !(worked(0, s) && worked(2, s)) && !(worked(1, s) && worked(2, s)))
inline check() { assert(one(0) && one(1) && one(2)) }

// What a decision computes, and forgets.
byte target[SHARDS], quota[NODES], held[NODES], kept[NODES];
byte takers, present, total, members, i, j, best;

// score stands for rendezvous hashing: an order of the nodes, another one for each shard.
// code: leader/shards/internal/plan.scoreOf
#define score(x, s) (((x) + (s)) % NODES)
#ifdef NO_ANNOUNCEMENT
#define leaves(x) (draining[x] && x == n)
#else
// code: leader/shards.(*run).self
#define leaves(x) draining[x]
#endif
#define in_play(x) (x == NOBODY || has(present, x) && (has(takers, x) || leaves(x)))

// targets computes the target of each shard, from the members that node n sees.
// code: leader/shards/internal/plan.targets
inline targets() {
	total = 0; members = 0;
	for (i : 0 .. NODES - 1) { held[i] = 0; kept[i] = 0; quota[i] = 0; members = members + has(takers, i) }
	for (i : 0 .. SHARDS - 1) {
		target[i] = owner[i];
		if
		:: in_play(owner[i]) -> total++
		:: else
		fi;
		if
		:: owner[i] != NOBODY && has(takers, owner[i]) -> held[owner[i]]++
		:: else
		fi
	}
	// Each member gets its part, rounded down. Those that own the most are rounded up first.
	// code: leader/shards/internal/plan.fill
	for (i : 0 .. NODES - 1) { quota[i] = (has(takers, i) -> total / members : 0) }
	for (j : 1 .. (members > 0 -> total % members : 0)) {
		best = NOBODY;
		for (i : 0 .. NODES - 1) {
			if
			:: has(takers, i) && quota[i] == total / members && (best == NOBODY || held[i] > held[best]) -> best = i
			:: else
			fi
		}
		quota[best]++
	}
	// A member keeps what it owns, up to its quota.
	// code: leader/shards/internal/plan.(*planner).surplus
	for (i : 0 .. SHARDS - 1) {
		if
		:: owner[i] != NOBODY && has(takers, owner[i]) && kept[owner[i]] < quota[owner[i]] -> kept[owner[i]]++
		:: owner[i] != NOBODY && has(takers, owner[i]) && kept[owner[i]] >= quota[owner[i]] -> target[i] = NOBODY + 1 // to be placed
		:: in_play(owner[i]) && !(owner[i] != NOBODY && has(takers, owner[i])) -> target[i] = NOBODY + 1
		:: else // its owner is no member, as node n sees it: it stays
		fi
	}
	// code: leader/shards/internal/plan.(*planner).place
	for (j : 0 .. SHARDS - 1) {
		if
		:: target[j] == NOBODY + 1 ->
			best = NOBODY;
			for (i : 0 .. NODES - 1) {
				if
				:: has(takers, i) && kept[i] < quota[i] && (best == NOBODY || score(i, j) > score(best, j)) -> best = i
				:: else
				fi
			}
			if
			:: best != NOBODY -> kept[best]++; target[j] = best
			:: else -> target[j] = owner[j]
			fi
		:: else
		fi
	}
}

// look sees the members, all but one that the view lacks, and decides.
// code: leader/shards/internal/plan.(*Node).decide
inline look(unseen) {
	present = 0; takers = 0;
	for (i : 0 .. NODES - 1) {
		if
		:: alive[i] && i != unseen -> present = present | bit(i);
			if
			:: !leaves(i) && !has(left_out[n], i) -> takers = takers | bit(i)
			:: else
			fi
		:: else
		fi
	}
	targets();
#ifndef NO_PATIENCE
	// A member leaves a free shard alone for Patience: others leave it out of the targets.
	// code: leader/shards/internal/plan.(*Node).suspect
	for (i : 0 .. SHARDS - 1) {
		if
		:: owner[i] == NOBODY && target[i] < NODES && hung[target[i]] -> left_out[n] = left_out[n] | bit(target[i])
		:: else
		fi
	}
	takers = takers & ~left_out[n];
	targets();
#endif
	for (i : 0 .. SHARDS - 1) {
		if
		:: owner[i] == NOBODY && target[i] == n -> claims[n] = claims[n] | bit(i)
		:: owner[i] == n && target[i] != n && target[i] < NODES && has(works[n], i) -> gives[n] = gives[n] | bit(i)
		:: else
		fi
	}
}
inline forget() {
	for (i : 0 .. SHARDS - 1) { target[i] = 0; quota[i] = 0; held[i] = 0; kept[i] = 0 }
	takers = 0; present = 0; total = 0; members = 0; i = 0; j = 0; best = 0
}

#define step (alive[n] && !stopped[n] && !hung[n])
#define idle (claims[n] == 0 && gives[n] == 0 && stray[n] == 0)
#ifdef NO_ROW_LOCK
#define guarded(s) false
#else
#define guarded(s) (s == 0 && write == GUARDED)
#endif

inline begin_term(s) {
	if
	:: s == 0 && write != NONE -> later = true
	:: else
	fi
}

// claim tries the lock, and counts a term if no guarded transaction has the row.
// code: leader/shards/postgres.(*lockSession).claim
#ifdef NO_TRY_LOCK
#define free(s) true
#else
#define free(s) (owner[s] == NOBODY)
#endif
#define claim_of(s) \
	:: d_step { step && has(claims[n], s) && free(s) && !guarded(s) -> \
		claims[n] = claims[n] & ~bit(s); owner[s] = n; works[n] = works[n] | bit(s); begin_term(s); \
		printf("node %d: claims shard %d\n", n, s); check() } \
	:: d_step { step && has(claims[n], s) && (!free(s) || guarded(s)) -> claims[n] = claims[n] & ~bit(s); printf("node %d: cannot claim shard %d\n", n, s) } \
	:: d_step { step && has(claims[n], s) && free(s) && !guarded(s) && faults > 0 -> faults--; \
		claims[n] = claims[n] & ~bit(s); owner[s] = n; stray[n] = stray[n] | bit(s); begin_term(s); \
		printf("fault: the claim of shard %d by node %d is cancelled after it took effect\n", s, n) }

// Work ends before the lock is released.
// code: leader/shards.(*Node).giveLocked
#define give_of(s) \
	GIVE(s) \
	:: d_step { step && has(gives[n], s) && has(works[n], s) -> works[n] = works[n] & ~bit(s); printf("node %d: its work on shard %d ends\n", n, s); GIVEN(s) }
#ifdef RELEASE_FIRST
#define GIVE(s) :: d_step { step && has(gives[n], s) && owner[s] == n -> owner[s] = NOBODY; printf("node %d: releases shard %d\n", n, s) }
#define GIVEN(s) if :: owner[s] != n -> gives[n] = gives[n] & ~bit(s) :: else fi
#else
#define GIVE(s) :: d_step { step && has(gives[n], s) && !has(works[n], s) -> gives[n] = gives[n] & ~bit(s); owner[s] = NOBODY; printf("node %d: releases shard %d\n", n, s) }
#define GIVEN(s) skip
#endif

#define others(n) (n != 0 && alive[0] && !draining[0] || n != 1 && alive[1] && !draining[1] || n != 2 && alive[2] && !draining[2])
#define all_owned (owner[0] != NOBODY && owner[1] != NOBODY && owner[2] != NOBODY)

inline end_work() { works[n] = 0; claims[n] = 0; gives[n] = 0; stray[n] = 0 }

proctype Node(byte n) {
end:	do
	// code: leader/shards.(*run).open
	:: d_step { !alive[n] && works[n] == 0 && !stopped[n] && !draining[n] -> alive[n] = true; lapsed[n] = false; window[n] = false; printf("node %d: joins\n", n) }
	// code: leader/shards.(*run).decide
	:: d_step { step && idle -> look(NOBODY);
		if
		:: claims[n] != 0 || gives[n] != 0 -> printf("node %d: decides to claim %d and to give up %d (masks)\n", n, claims[n], gives[n])
		:: else
		fi;
		forget() }
	// The view lacks a member.
	:: d_step { step && idle && faults > 0 -> faults--; look((n + 1) % NODES);
		printf("fault: node %d does not see node %d, and decides to claim %d and to give up %d (masks)\n", n, (n + 1) % NODES, claims[n], gives[n]); forget() }
	claim_of(0)
	claim_of(1)
	claim_of(2)
	give_of(0)
	give_of(1)
	give_of(2)
#ifndef NO_GIVE_BACK
	// code: leader/shards/postgres.(*lockSession).giveBack
	// code: internal/pgsession.(*Session).giveBack
	:: d_step { step && stray[n] != 0 -> for (i : 0 .. SHARDS - 1) { owner[i] = (has(stray[n], i) && owner[i] == n -> NOBODY : owner[i]) }
		i = 0; stray[n] = 0; printf("node %d: gives back what a cancelled claim left\n", n) }
#else
	:: d_step { step && stray[n] != 0 -> stray[n] = 0; printf("node %d: goes on after a cancelled claim\n", n) }
#endif
	// A member that was left out is trusted again after some time.
	:: d_step { step && left_out[n] != 0 && all_owned -> left_out[n] = 0; printf("node %d: trusts all members again\n", n) }
	// A node that drains gives up all its shards, and leaves.
	// code: leader/shards.(*run).leave
	:: d_step { step && draining[n] && idle && works[n] == 0 && owner[0] != n && owner[1] != n && owner[2] != n -> alive[n] = false; printf("node %d: leaves\n", n) }
	:: d_step { step && draining[n] && idle && works[n] != 0 && !others(n) -> gives[n] = works[n]; printf("node %d: gives up its shards, nobody else is there\n", n) }
	// The notice of the server, or the node's own deadline.
	// code: leader/shards.(*session).lose
	:: d_step { !alive[n] && works[n] != 0 && !stopped[n] -> end_work(); printf("node %d: its session is lost\n", n) }
	od
}

inline end_session(n) {
	alive[n] = false; claims[n] = 0; gives[n] = 0; stray[n] = 0; left_out[n] = 0; hung[n] = false;
	for (i : 0 .. SHARDS - 1) { owner[i] = (owner[i] == n -> NOBODY : owner[i]) }
	i = 0
}

// A transaction that a node guards by its term of shard 0.
// code: leader/shards/postgres.Guard
proctype Writer() {
end:	do
	:: d_step { write == NONE && writes > 0 && has(works[0], 0) && !stopped[0] -> writes--; write = CLAIMED; writer = 0; later = false; printf("writer: node 0 begins a transaction on shard 0\n") }
	:: d_step { write == NONE && writes > 0 && has(works[1], 0) && !stopped[1] -> writes--; write = CLAIMED; writer = 1; later = false; printf("writer: node 1 begins a transaction on shard 0\n") }
#ifdef NO_GUARD
	:: d_step { write == CLAIMED && !stopped[writer] -> write = GUARDED }
#else
	:: d_step { write == CLAIMED && !stopped[writer] && !later -> write = GUARDED; printf("writer: the guard locks the row of the term\n") }
	:: d_step { write == CLAIMED && !stopped[writer] && later -> write = NONE; later = false; writer = 0; printf("writer: the guard refuses\n") }
#endif
	:: d_step { write == GUARDED && !stopped[writer] && !hangs -> assert(!later); write = NONE; later = false; writer = 0; printf("writer: commits\n") }
	:: d_step { write == GUARDED && faults > 0 && !hangs -> faults--; hangs = true; printf("fault: the transaction hangs\n") }
#ifndef NO_END_OF_GUARDS
	// A claim that the transaction blocks ends it after GuardTimeout.
	// code: leader/shards/postgres.(*lockSession).endGuards
	:: d_step { write == GUARDED && owner[0] == NOBODY -> write = NONE; later = false; hangs = false; writer = 0; printf("server: a claim of shard 0 ends the transaction\n") }
#endif
	od
}

#define lease_of(n) \
	:: d_step { alive[n] && stopped[n] -> end_session(n); lapsed[n] = true; printf("server: the lease of node %d is over\n", n) }
#define may_fail(n) \
	:: d_step { faults > 0 && !stopped[n] && alive[n] -> faults--; stopped[n] = true; printf("fault: SIGSTOP for node %d\n", n) } \
	:: d_step { stopped[n] -> stopped[n] = false; printf("fault: node %d continues\n", n); check() } \
	:: d_step { faults > 0 && alive[n] && !hung[n] -> faults--; end_session(n); window[n] = works[n] != 0; printf("fault: the session of node %d is terminated\n", n) } \
	HANG(n) \
	:: d_step { changes > 0 && alive[n] && !draining[n] -> changes--; draining[n] = true; printf("operator: drains node %d\n", n) } \
	:: d_step { changes > 0 && !alive[n] && draining[n] && works[n] == 0 -> changes--; draining[n] = false; printf("operator: starts node %d again\n", n) }
#ifdef NO_HANG
#define HANG(n)
#else
#define HANG(n) :: d_step { faults > 0 && alive[n] && !hung[n] && owner[0] != n && owner[1] != n && owner[2] != n -> faults--; claims[n] = 0; hung[n] = true; printf("fault: node %d hangs, but keeps its membership\n", n) }
#endif

proctype Server() {
end:	do
#ifndef NO_LEASE
	lease_of(0)
	lease_of(1)
	lease_of(2)
#else
	:: false
#endif
	od
}

proctype Faults() {
end:	do
	may_fail(0)
	may_fail(1)
	may_fail(2)
	:: break
	od
}

init {
	atomic {
		run Node(0); run Node(1); run Node(2); run Writer(); run Server(); run Faults()
	}
}

#define busy(s) (has(works[0], s) && owner[s] == 0 || has(works[1], s) && owner[s] == 1 || has(works[2], s) && owner[s] == 2)
#define able(n) (!stopped[n] && !draining[n] && !hung[n])
#define nobody_can (!able(0) && !able(1) && !able(2))
ltl owned { [] <> (busy(0) && busy(1) && busy(2) || nobody_can) }
#define at_rest (gives[0] == 0 && gives[1] == 0 && gives[2] == 0 && busy(0) && busy(1) && busy(2))
ltl still { <> [] (at_rest || nobody_can) }
