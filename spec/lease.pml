// A lease with a fencing token: one name, two clients, two lock servers and the store. README.md explains how to read this.
//
// check exclusive: who believes that it holds has the lease in the store; requests that are sent again are answered alike
//   small: -DGRANTS=2 -DFAULTS=2 -DSWEEPS=0 -DWRITES=0 -DPROMPT
//   large: -DGRANTS=4 -DFAULTS=3 -DSWEEPS=1 -DWRITES=0 -DPROMPT
// check slow: the same, while messages and processes take any time
//   small: -DGRANTS=1 -DFAULTS=1 -DSWEEPS=0 -DWRITES=1
//   large: bitstate -DGRANTS=3 -DFAULTS=1 -DSWEEPS=0 -DWRITES=1
// check guarded: no guarded transaction of a lease commits after a later lease began
//   small: -DGRANTS=2 -DFAULTS=1 -DSWEEPS=0 -DWRITES=1 -DPROMPT
//   large: -DGRANTS=3 -DFAULTS=2 -DSWEEPS=1 -DWRITES=2 -DPROMPT
// check forgotten: tokens rise although a sweep forgets the name
//   small: -DGRANTS=2 -DFAULTS=1 -DSWEEPS=1 -DWRITES=1 -DPROMPT
//   large: -DGRANTS=4 -DFAULTS=2 -DSWEEPS=2 -DWRITES=1 -DPROMPT
// live served: while a client asks, the lease does not stay with a holder that is dead, or with a transaction that never ends
//   small: -DGRANTS=2 -DFAULTS=1 -DSWEEPS=0 -DWRITES=1 -DPROMPT
//   large: -DGRANTS=3 -DFAULTS=2 -DSWEEPS=0 -DWRITES=1 -DPROMPT

#define TTL 2
#define BOUND 1 /* after so many ticks without an answer, a client sends its request again, to the other server */
#define NOBODY 3
#define slot(c, s) (2 * (c) + (s))

mtype:kind = { ACQUIRE, RENEW, RELEASE };
mtype:answer = { GRANTED, RENEWED, RELEASED, REFUSED };
mtype:phase = { IDLE, ASKING, HOLDING, RENEWING, RELEASING };
mtype:write = { NONE, CLAIMED, LOCKED, READ, GUARDED };

// The store: the row of the name, and who has locks on it.
byte token, holder = NOBODY, key; // token 0 = no row
byte left;                        // ticks until the lease expires, by the store's clock
bool ended = true;                // released
byte last_release;                // the token of the last release that had a key
byte floor;                       // what a sweep keeps of the tokens that it forgets
byte told;                        // the token of a lease of which somebody was told that it has expired
byte row_lock = 255;              // the slot whose renewal has the row
bool advisory[2];                 // the guard of a client's transaction has the advisory lock
bool key_share[2], late_share[2]; // and FOR KEY SHARE on the row; late = it came while a renewal had the row

// The network and the lock servers. A slot is a request of a client at a server, which can be stopped with it.
mtype:kind request[4];
byte what[4];       // the key of an acquire, or the token
bool server_stopped;// server 0
mtype:answer answer[2];
byte got[2], ttl[2];// of an answer: the token, and how long the lease lasts

// The clients.
mtype:phase phase[2];
byte trust[2], age[2];
bit at[2];          // the server that the client listens to
byte mine[2];       // the token of the client's lease; 0 = none
byte asked[2];      // the key of its acquire
bool want[2], stopped[2];
mtype:write write[2];
byte claim[2];      // the token with which a transaction is guarded

// Bounds, and what only the properties need.
byte faults = FAULTS, sweeps = SWEEPS, writes = WRITES;
byte highest, forced /* a bit for each token */, released_by[2];
bool tick, renewed[2];

// code: lease.Trust
#define believes(c) ((phase[c] == HOLDING || phase[c] == RENEWING) && trust[c] > 0)
#define has(c) (token == mine[c] && holder == c && !ended && left > 0)
#define was_forced(t) ((forced >> (t)) & 1)
inline check() {
	assert(!believes(0) || has(0) || was_forced(mine[0]));
	assert(!believes(1) || has(1) || was_forced(mine[1]))
}

#define listens(c, s) (answer[c] == 0 && at[c] == s && (phase[c] == ASKING || phase[c] == RENEWING || phase[c] == RELEASING))
#define arrived(x, k) (request[x] == k && !(server_stopped && (x) % 2 == 0) && row_lock == 255)

// respond answers the client if it still listens to this server.
inline respond(a, t, l) {
	if
	:: listens(c, s) -> answer[c] = a; got[c] = t; ttl[c] = l
	:: else
	fi;
	request[slot(c, s)] = 0; what[slot(c, s)] = 0
}

#define free_row (ended || left == 0)
#ifdef NO_ADVISORY
#define unguarded (!key_share[0] && !key_share[1])
#else
#define unguarded (!advisory[0] && !advisory[1])
#endif
#ifdef NO_KEY
#define again false
#else
#define again (holder == c && key == what[slot(c, s)])
#endif
#ifdef NO_TOKEN_IN_RELEASE
#define claimed (holder == c)
#else
#define claimed (holder == c && token == what[slot(c, s)])
#endif

#ifdef NO_LAST_RELEASE
#define proof false
#else
// code: lease/internal/rules.ReleaseProof
#define proof (last_release != 0 && last_release == what[slot(c, s)])
#endif
#define claimed_in_renewal (holder == c && token == what[slot(c, s)])
#ifdef NO_EXPIRY_IN_RENEW
#define renewable true
#else
#define renewable (left > 0)
#endif

inline end_lease() {
	ended = true; left = 0;
	printf("store: the lease with token %d has ended\n", token)
}

// A lock server executes the requests of one client in the store.
proctype Server(byte c; byte s) {
	do
	// code: lease/postgres/schema/operations.sql pglatch_lease.take
	// code: lease/internal/rules.Acquire
	:: d_step { arrived(slot(c, s), ACQUIRE) && !free_row && again ->
		printf("server %d: client %d has the lease with token %d already\n", s, c, token); respond(GRANTED, token, left) }
	:: d_step { arrived(slot(c, s), ACQUIRE) && !free_row && !again ->
		printf("server %d: refuses client %d, the lease is held\n", s, c);
		assert(!(holder == c && key == what[slot(c, s)] && listens(c, s))); // a request is not refused because of its own lease
		respond(REFUSED, 0, 0) }
	:: d_step { arrived(slot(c, s), ACQUIRE) && free_row && (token == GRANTS || highest == GRANTS) -> respond(REFUSED, 0, 0) } // the end of the model
	:: d_step { arrived(slot(c, s), ACQUIRE) && free_row && unguarded && token < GRANTS && highest < GRANTS ->
		// code: lease/postgres/schema/token.sql pglatch_lease.floor
		token = (token > floor -> token : floor) + 1;
		assert(token > highest); highest = token;
		holder = c; key = what[slot(c, s)]; left = TTL; ended = false;
		key_share[0] = false; key_share[1] = false;
		printf("server %d: client %d gets the lease with token %d\n", s, c, token);
#ifdef GIVE_BACK
		if
		:: listens(c, s) -> respond(GRANTED, token, left)
		:: else -> request[slot(c, s)] = RELEASE; what[slot(c, s)] = token
		fi;
#else
		// A grant that could not be delivered is not given back: the client may have it by another server.
		// code: lease/leaseserver.(*queue).giveUp
		respond(GRANTED, token, left);
#endif
		check() }

	// A renewal has the row for some time: the guard's FOR KEY SHARE goes on meanwhile.
	// code: lease/postgres/schema/operations.sql pglatch_lease.renew
	:: d_step { arrived(slot(c, s), RENEW) -> row_lock = slot(c, s) }
	:: d_step { row_lock == slot(c, s) && claimed_in_renewal && !ended && renewable ->
		left = TTL; row_lock = 255;
		assert(told != token);
		late_share[0] = false; late_share[1] = false;
		printf("server %d: renews the lease with token %d of client %d\n", s, token, c); respond(RENEWED, token, left); check() }
	// The new version of the row is on another page. PostgreSQL drops a FOR KEY SHARE that came meanwhile.
	:: d_step { row_lock == slot(c, s) && claimed_in_renewal && !ended && renewable && (late_share[0] || late_share[1]) ->
		left = TTL; row_lock = 255;
		if
		:: late_share[0] -> key_share[0] = false
		:: else
		fi;
		if
		:: late_share[1] -> key_share[1] = false
		:: else
		fi;
		late_share[0] = false; late_share[1] = false;
		printf("server %d: renews the lease with token %d of client %d, and the row moves\n", s, token, c); respond(RENEWED, token, left); check() }
	:: d_step { row_lock == slot(c, s) && !(claimed_in_renewal && !ended && renewable) ->
		row_lock = 255; late_share[0] = false; late_share[1] = false;
		// code: lease/postgres/schema/clock.sql pglatch_lease.keep
		if
		:: claimed_in_renewal && !ended -> told = token; printf("store: the lease with token %d has expired, as client %d is told\n", token, c)
		:: else
		fi;
		printf("server %d: does not renew for client %d\n", s, c); respond(REFUSED, 0, 0) }

	// code: lease/postgres/schema/operations.sql pglatch_lease.give
	// code: lease/internal/rules.Release
	:: d_step { arrived(slot(c, s), RELEASE) && claimed && !ended && left > 0 ->
		end_lease(); released_by[c] = what[slot(c, s)]; last_release = token;
		printf("server %d: releases it for client %d\n", s, c); respond(RELEASED, 0, 0); check() }
	:: d_step { arrived(slot(c, s), RELEASE) && (claimed && ended || proof) && !(claimed && !ended && left > 0) ->
		printf("server %d: answers client %d that the lease is released\n", s, c); respond(RELEASED, 0, 0) }
	:: d_step { arrived(slot(c, s), RELEASE) && !(claimed && (ended || left > 0)) && !proof ->
		printf("server %d: refuses to release for client %d: its lease is over\n", s, c);
		// code: lease/postgres/schema/clock.sql pglatch_lease.keep
		if
		:: claimed && !ended -> told = token
		:: else
		fi;
		// If the release of this lease was carried out, and no other one since, its client may not learn anything else.
		assert(!(listens(c, s) && released_by[c] == what[slot(c, s)] && last_release == what[slot(c, s)]));
		respond(REFUSED, 0, 0) }
	od
}

#define step(p) (phase[c] == p && !stopped[c])
#define hears(p, a) (phase[c] == p && !stopped[c] && answer[c] == a)
#define send(k, w) request[slot(c, at[c])] = k; what[slot(c, at[c])] = w; age[c] = 0
// A client waits at its server until the lease may be free. It makes few requests, so that no two of them have one key.
#define KEYS 3
#ifdef PROMPT
#define calm free_row
#else
#define calm true
#endif
#ifdef LIVE
#define may_ask calm
#else
#define may_ask (calm && asked[c] < KEYS)
#endif
#ifdef LIVE
#define may_renew (!renewed[c]) /* a holder that renews for ever keeps the lease, rightly */
#else
#define may_renew true
#endif
#define can_send (request[slot(c, at[c])] == 0)

// learned is what a client knows of its lease after an answer: its remaining time counts from when the request was sent.
// code: lease.Trust
inline learned() {
	mine[c] = got[c];
#ifdef DEADLINE_FROM_ANSWER
	trust[c] = ttl[c];
#else
#ifdef TRUST_FULL_TTL
	trust[c] = (TTL > age[c] -> TTL - age[c] : 0);
#else
	trust[c] = (ttl[c] > age[c] -> ttl[c] - age[c] : 0);
#endif
#endif
	answered()
}
inline answered() { answer[c] = 0; got[c] = 0; ttl[c] = 0; age[c] = 0 }

inline lose() {
	printf("client %d: has no lease any more\n", c);
	mine[c] = 0; trust[c] = 0; renewed[c] = false; answered(); phase[c] = IDLE
}

proctype Client(byte c) {
	do
	// A new request has a new key.
	// code: internal/resend.(*Lease).Request
	:: d_step { step(IDLE) && can_send && highest < GRANTS && may_ask ->
		want[c] = true; asked[c] = asked[c] % KEYS + 1; phase[c] = ASKING; send(ACQUIRE, asked[c]); printf("client %d: asks server %d\n", c, at[c]) }
	:: d_step { step(IDLE) && !can_send && request[slot(c, 1 - at[c])] == 0 -> at[c] = 1 - at[c] }
	// code: internal/resend.(*Lease).Answered
	:: d_step { hears(ASKING, GRANTED) -> learned(); want[c] = false; phase[c] = HOLDING;
		printf("client %d: has the lease with token %d, until its deadline in %d\n", c, mine[c], trust[c]); check() }
	:: d_step { hears(ASKING, REFUSED) -> answered(); phase[c] = IDLE }
	// No answer: the client sends its request again, with its key, to the other server. The first one may be carried out later.
	// code: lease/leasehttp.(*Client).do
	:: d_step { step(ASKING) && answer[c] == 0 && age[c] >= BOUND && request[slot(c, 1 - at[c])] == 0 ->
		at[c] = 1 - at[c]; send(ACQUIRE, asked[c]); printf("client %d: asks again, server %d\n", c, at[c]) }
	:: d_step { (step(RENEWING) || step(RELEASING)) && answer[c] == 0 && age[c] >= BOUND && request[slot(c, 1 - at[c])] == 0 ->
		at[c] = 1 - at[c];
		if
		:: phase[c] == RENEWING -> send(RENEW, mine[c])
		:: else -> send(RELEASE, mine[c])
		fi;
		printf("client %d: sends its request again, to server %d\n", c, at[c]) }

	// code: internal/renew.Rules.Next
	:: d_step { step(HOLDING) && trust[c] == 1 && can_send && may_renew ->
#ifdef LIVE
		renewed[c] = true;
#endif
		phase[c] = RENEWING; send(RENEW, mine[c]); printf("client %d: renews at server %d\n", c, at[c]) }
	:: d_step { hears(RENEWING, RENEWED) -> learned(); phase[c] = HOLDING; printf("client %d: its deadline is in %d\n", c, trust[c]); check() }
	:: d_step { hears(RENEWING, REFUSED) -> lose() }
	// code: lease/leasehttp.(*heartbeat).expired
	:: d_step { (step(HOLDING) || step(RENEWING)) && trust[c] == 0 -> lose() }

	:: d_step { step(HOLDING) && trust[c] > 0 && can_send ->
		trust[c] = 0; phase[c] = RELEASING; send(RELEASE, mine[c]); printf("client %d: releases at server %d\n", c, at[c]) }
	:: d_step { hears(RELEASING, RELEASED) -> lose() }
	:: d_step { hears(RELEASING, REFUSED) -> lose() }
	od
}

inline end_transaction() { write[c] = NONE; claim[c] = 0; advisory[c] = false; key_share[c] = false; late_share[c] = false }
#define valid (token == claim[c] && holder == c && !ended && left > 0)

// A transaction of the client that is guarded by its lease. It can be slow, and so end after the lease.
proctype Writer(byte c) {
	do
	:: d_step { write[c] == NONE && step(HOLDING) && trust[c] > 0 && writes > 0 ->
		writes--; write[c] = CLAIMED; claim[c] = mine[c]; printf("writer %d: begins a transaction with token %d\n", c, claim[c]) }
#ifdef NO_GUARD
	:: d_step { write[c] == CLAIMED && !stopped[c] -> write[c] = GUARDED }
#else
#ifdef GUARD_READS_FIRST
	:: d_step { write[c] == CLAIMED && !stopped[c] && valid -> write[c] = READ; printf("writer %d: the guard reads the row\n", c) }
	:: d_step { write[c] == CLAIMED && !stopped[c] && !valid -> end_transaction() }
	:: d_step { write[c] == READ && !stopped[c] -> advisory[c] = true; write[c] = GUARDED }
#else
	// code: lease/postgres/schema/guard.sql pglatch_lease.guard
	:: d_step { write[c] == CLAIMED && !stopped[c] -> advisory[c] = true; write[c] = LOCKED; printf("writer %d: the guard has the advisory lock\n", c) }
	:: d_step { write[c] == LOCKED && !stopped[c] && valid ->
		key_share[c] = true; late_share[c] = (row_lock != 255); write[c] = GUARDED; printf("writer %d: the guard lets the transaction pass\n", c);
		assert(told != token) }
	:: d_step { write[c] == LOCKED && !stopped[c] && !valid ->
		// code: lease/postgres/schema/clock.sql pglatch_lease.keep
		if
		:: row_lock == 255 && token == claim[c] && !ended && left == 0 -> told = token; printf("store: the lease with token %d has expired, as writer %d is told\n", token, c)
		:: else
		fi;
		printf("writer %d: the guard refuses\n", c); end_transaction() }
#endif
#endif
	:: d_step { write[c] == GUARDED && !stopped[c] ->
		printf("writer %d: commits with token %d\n", c, claim[c]);
		assert(highest == claim[c]); // no later lease has begun
		end_transaction() }
#ifndef NO_GUARD_LIMIT
	// The server ends a transaction whose client is idle for too long.
	// code: lease/postgres/schema/guard.sql pglatch_lease.limit_client
	:: d_step { (write[c] == LOCKED || write[c] == GUARDED) && stopped[c] -> printf("store: ends the idle transaction of writer %d\n", c); end_transaction() }
#endif
	od
}

#ifdef PROMPT
// Time passes only while nothing can be delivered, and no step of a process is due.
#define runs(x) (request[x] != 0 && !(server_stopped && (x) % 2 == 0) && !(request[x] == ACQUIRE && free_row && !unguarded && highest < GRANTS))
#define busy (runs(0) || runs(1) || runs(2) || runs(3) || row_lock != 255 || client_busy(0) || client_busy(1))
#define client_busy(c) (!stopped[c] && (answer[c] != 0 || write[c] != NONE))
#else
#define busy false
#endif

inline pass(x) {
	if
	:: trust[x] > 0 -> trust[x]--
	:: else
	fi;
	if
	:: (phase[x] == ASKING || phase[x] == RENEWING || phase[x] == RELEASING) && age[x] < TTL -> age[x]++
	:: else
	fi
}

// code: internal/boottime.Now
proctype Clock() {
	do
	:: d_step { !busy ->
#ifdef LIVE
		tick = !tick;
#endif
#ifndef NO_EXPIRY
		if
		:: left > 0 -> left--
		:: else
		fi;
#endif
		pass(0); pass(1);
		printf("clock: a tick; the lease has %d left; deadlines in %d and %d\n", left, trust[0], trust[1]);
		check() }
	// The server's clock is set back: an expired lease goes on, unless somebody was told. The mark keeps time from going back.
	// code: lease/postgres/schema/clock.sql pglatch_lease.now
#ifdef NO_MARK
	:: d_step { faults > 0 && left == 0 && !ended && token != 0 && row_lock == 255 -> faults--; left = 1; printf("fault: the store's clock is set back\n") }
#else
	:: d_step { faults > 0 && left == 0 && !ended && token != 0 && row_lock == 255 && told != token -> faults--; left = 1; printf("fault: the store's clock is set back\n") }
#endif
	// code: lease/postgres/schema/sweep.sql pglatch_lease.sweep
	:: d_step { sweeps > 0 && token != 0 && free_row && row_lock == 255 && !key_share[0] && !key_share[1] ->
		sweeps--;
#ifndef NO_FLOOR
		// code: lease/postgres/schema/token.sql pglatch_lease.forget
		floor = token;
#endif
		token = 0; holder = NOBODY; key = 0; left = 0; ended = true; last_release = 0;
		printf("store: a sweep forgets the name\n") }
	od
}

proctype Faults() {
	do
	:: d_step { faults > 0 && !stopped[0] -> faults--; stopped[0] = true; printf("fault: SIGSTOP for client 0\n") }
	:: d_step { stopped[0] -> stopped[0] = false; printf("fault: client 0 continues\n"); check() }
	:: d_step { faults > 0 && !server_stopped -> faults--; server_stopped = true; printf("fault: SIGSTOP for server 0\n") }
	:: d_step { server_stopped -> server_stopped = false; printf("fault: server 0 continues\n") }
	// An operator releases the lease of another.
	// code: lease/leaseserver.(*forced).release
	:: d_step { faults > 0 && !ended && left > 0 && row_lock == 255 -> faults--; forced = forced | (1 << token); printf("operator: releases the lease by force\n"); end_lease() }
	:: break
	od
}

init {
	atomic {
		phase[0] = IDLE; phase[1] = IDLE; write[0] = NONE; write[1] = NONE;
		run Server(0, 0); run Server(0, 1); run Server(1, 0); run Server(1, 1);
		run Client(0); run Client(1); run Writer(0); run Writer(1);
		run Clock(); run Faults()
	}
}

ltl served { ([] <> tick && [] <> !tick) -> [] (want[1] -> <> (!want[1] || highest == GRANTS || stopped[1])) }
