// Package leaseserver is a lock server: fenced leases over HTTP. It stands before any
// lease.Store:
//
//	store, err := sqlite.Open(ctx, "locks.db", sqlite.Config{})
//	…
//	server, err := leaseserver.New(leaseserver.Config{Store: store})
//	…
//	err = server.ListenAndServe(ctx, "127.0.0.1:8080") // until ctx ends
//
// Clients in Go use lease/leasehttp, which says what becomes of messages that get lost;
// anything else that speaks HTTP asks for leases by these routes.
//
// # Routes
//
//	POST /v1/locks/{lock}/acquire     owner_id [, ttl_ms, idempotency_key, metadata, lock_delay_ms, min_hold_ms, max_lifetime_ms]
//	     …/acquire?wait=10s           the same, and waits for the lock
//	     …/acquire  slots or mode     a slot of the lock, or the whole lock: see below
//	POST /v1/locks/{lock}/renew       owner_id, lease_id, fencing_token [, ttl_ms, metadata]
//	POST /v1/locks/{lock}/adopt       owner_id, lease_id: the lease again, of a holder that was started again
//	POST /v1/renewals                 renewals: up to 500 of these, each with its lock
//	POST /v1/locks/{lock}/release     owner_id, lease_id, fencing_token [, idempotency_key]
//	POST /v1/locks/{lock}/force-release   reason [, lease_id, fencing_token]: ends the lease of another, for admins
//	GET  /v1/locks/{lock}             the current or last lease, state FREE, HELD or EXPIRED, version
//	     …?wait=10s&index=7           the same, as soon as the version is not 7
//	GET  /v1/locks                    all, in pages: after, prefix, limit
//	GET  /v1/openapi.json             all this, for machines
//	GET  /metrics
//	GET  /healthz                     503: only a new start of the server helps
//	GET  /readyz                      503: it shuts down, or its store cannot be used now
//
// The probes ask a store that is a lease.HealthReporter for its health; of another
// store, /readyz knows only that it answers a Get.
//
// HEAD is answered as GET. A lock's name is one segment of the path, percent-encoded. A
// request with a field or parameter that the server does not know is refused too: a
// misspelt idempotency_key that was ignored would cost a second lease. So is a field in
// another case, one that comes twice, and half of a surrogate pair, which readers of JSON
// take for different things. Clients ignore fields that they do not know.
//
// A ttl_ms that is left out is the default that Config.TTLPolicies has for the name of the
// lock, and one outside of their bounds is refused, also in a renewal. If there is no
// default, ttl_ms is needed.
//
// The metadata of a renewal takes the place of the lease's; {} empties it, and without the field
// it stays as it is.
//
// Many leases are renewed in one request, on a store that is a lease.BatchRenewer in one
// operation. Each renewal is answered by itself, with a lease or a Problem, as it would have
// been alone; rights are looked at for each, and Authorize is asked for each.
//
// GET shows the lease_id to the bearers of a Token with the right Admin only: who knows it can
// release the lease, and nobody else but the holder is to. What a Token is not good for is
// refused with 403 and the type forbidden.
//
// # Releases by force
//
// An admin ends the lease of another with force-release. It is Store.Get and then the release of
// the claim that was found: what was renewed since is ended, a successor is not. A request that names a
// lease_id or a fencing_token ends that lease only, and can be sent again; leasehttp always names one. (Sent
// again with a fencing_token while the lock is kept for the lock_delay_ms, it is answered as before, with the
// time of the end as acquired_at and expires_at; with a lease_id it is lease-stale then.) It is no
// proof that the holder has stopped, which learns of it at its next renewal: if it asked for a lock_delay_ms,
// that counts from then on, as after an expiry. A lease of the server's own keeps the
// lock for it, in the same operation of the store if that is a lease.HandOverer; a min_hold_ms that is not
// over goes before it, and the lock is kept for the rest of that alone. The server logs one line,
// lease_force_released at Warn: outcome (released, refused, or unknown), by (Token.Name), from, lock, owner_id,
// fencing_token, reason, lock_delay_ms; never a lease_id.
//
// # Answers
//
// Every refusal of a route is a Problem, an application/problem+json body of RFC 9457.
// (What net/http cannot read as a request, it answers itself with 400, 431, 501 or 505 in
// plain text, and closes the connection: no handler is asked, and to change its bytes on
// their way would rest on their wording, and fail under TLS.) Its type
// decides; the client makes of it the error of package lease that the server's store
// gave:
//
//	409 lock-held                lease.ErrHeld      with holder and recommended_retry_ms, and Retry-After
//	409 lease-stale              lease.ErrStale     which of the claim's fields is not current
//	409 lease-expired            lease.ErrExpired
//	404 lock-not-found           lease.ErrNotFound
//	400 invalid-request          lease.ErrInvalid   also 404 no-such-route, 405, 415 unsupported-media-type
//	413 body-too-large           lease.ErrInvalid
//	422 out-of-range             lease.ErrInvalid   a number
//	503 lock-busy-retry          lease.ErrBusy      nothing was done; also 429 rate-limited
//	503 store-not-ready          lease.ErrNotReady  nothing was done
//	401 unauthorized, 403        leasehttp.ErrDenied
//	503 store-unavailable, 500   any other error    the outcome is unknown
//
// An answer has the header Pglatch-Request-Id of its request, if that had one, of 64 bytes
// at most. The client sends one with each sending, and takes no answer that has another:
// what comes late on a connection, or is mixed up on the way, is nobody's.
//
// # Waiting
//
// ?wait= puts a request in the lock's line, first come, first served. Only the first
// of the line asks the store: after a release through this server at once, when the
// holder's lease must have expired, and, for what other servers on the same store do,
// every PollInterval, when it looks first whether asking can help. So a grant costs one
// acquire, however many wait, and on a store that is a lease.HandOverer not even that:
// the release itself gives the lock to the first. Who hangs up, or whose time is over, leaves the line.
// Whoever's time is over is told that the lock is held only if the store has said so
// since the request came, and has been asked nothing since; else it asks once, as a
// request that does not wait, for StoreTimeout at most. So a store that is silent or
// refuses makes 503, never lock-held.
//
// Several sendings of a request, with one owner and one idempotency key, wait each in a
// place of their own, and all get the lease that one of them gets. If another server on
// the same store granted it, they hear of it within PollInterval.
//
// Requests that do not wait ask beside the line.
//
// # Several servers
//
// Servers whose store is a lease.Messenger tell each other who waits for what, and that it is free; so all have one
// line for each lock, and a lock that is released at one of them goes to the first, wherever that one waits. On another
// store each server has its own line, and only tokens order their grants. The order is that in which
// requests were announced: when the store has refused them, or when others of their server wait before
// them. Messages carry no time, so the clocks of servers do not matter. Whatever becomes of messages,
//
//   - a lock has one holder: the store decides that, and no message;
//   - a lock that is free, and for which somebody waits, is asked for within 1.5 times PollInterval: the first
//     waiter of each server looks so often. PollInterval < 0 is not for several servers: what is lost then
//     is lost until the lease expires;
//   - a message that was not sent is sent again, and one that was lost is noticed with the next one a second later, as every server
//     says each second, in a digest, what the others should know of it. Who knows something else asks for it.
//     Waiters have the same places then as before. So they do after a lost connection, a fail-over of the store, and
//     when a server is heard again that had been silent;
//   - a server that sends, and for five seconds does not hear itself, listens on a new connection.
//
// A server that ends tells the others. One that dies, or is silent, is forgotten after five seconds; until then
// a turn of one of its waiters costs a PollInterval each. There is no one order
//
//   - for the moment in which a lock is free, on its way to another server or when a lease has expired:
//     who asks then, as new requests and the first of every server do, can come between;
//   - with a server that does not hear others, or is not heard by them: its messages are not possible, as behind some
//     poolers, or its version has none. Each serves its own waiters first then, from one to the next. Those of others look
//     each PollInterval, and get the lock when it is free at that moment: they can wait for as long as somebody waits here.
//
// A request that waits costs at most three messages, if there are other servers: it waits, it is its turn, it has left. One
// that gets the lock without waiting costs none. Each server sends one message a second besides. All waiters of a
// server are announced again, once in a second at most, when another one begins to listen or asks. Of the others
// a server remembers 100,000 waiters; of more it knows nothing until there is room.
//
// # Watching
//
// A GET with ?wait= waits for a change: it is answered as soon as the version is another than
// ?index=, 0 if that is left out or the lock is not known, and in any case after the time, with
// what is. What this server did to the lock is answered at once, what other servers did
// when they tell of it, or after a PollInterval; that a lease expired, when a sweep found it.
// However many watch a lock, a change costs one look at the store. MaxWaiters of
// them can watch at a time, beside those who wait for locks.
//
// # Locks that several hold
//
// An acquire with slots, of 1 to 1000, asks for a slot of the lock, which so many may have at
// once; with mode shared it asks for one of any number, and with mode exclusive for the whole lock,
// while nobody has a slot. The promises, and what becomes of requests that die, are those of
// lease/shared, also with several servers on one store. The answer's lock is the slot's own
// name, job::slot::0002 (the whole lock's is job::slot::0000): renew and release that, and list
// the prefix job::slot:: to see who has which. Its share_of is the lock, its fence rises over all
// of the lock's shares. Nothing else can be leased by such a name. A lease of the lock's
// name without slots and mode is of another lock.
//
// ?wait= is first come, first served here too, whatever each asks for: who comes later waits behind
// one for whom too many slots are taken. Who waits is told of a slot that was released through
// this server or, on a lease.Messenger, another; else it looks each PollInterval. A request that does not wait
// is answered at once if the lock is taken, else it stands behind others for a second at most. If a request with an
// idempotency key is sent again, the new sending gets the share that an earlier one got, at whichever server, though
// others wait between them: it looks after PollInterval, then after twice that time, and so on, and when it is refused. One with mode
// exclusive that gave up and has an idempotency key keeps others out for 5 s: it can come back.
//
// # Who may ask
//
// Each of Tokens, which are bearer tokens and the names of client certificates, has a right and a prefix of names; what it is not for is refused with 403. Whoever
// passes an Authorize of the program has every right but that of Admin to see a lease_id.
// Without them, only clients on the server's machine are answered, and no request with a
// header that proxies add. A proxy on the machine that adds none cannot be told from a
// client: behind any proxy, set Tokens. On a Unix socket the rights of its file say who is answered;
// only requests through a proxy are refused. On an address that
// is not loopback, Serve wants TLS and one of both, or AllowInsecure.
package leaseserver
