// Package leaseserver is a lock server: fenced leases over HTTP. It runs in front of any
// lease.Store:
//
//	store, err := sqlite.Open(ctx, "locks.db", sqlite.Config{})
//	…
//	server, err := leaseserver.New(leaseserver.Config{Store: store})
//	…
//	err = server.ListenAndServe(ctx, "127.0.0.1:8080") // until ctx ends
//
// Clients in Go use lease/leasehttp, which documents the handling of lost messages. Any other HTTP
// client requests leases by these routes.
//
// # Routes
//
//	POST /v1/locks/{lock}/acquire     owner_id [, ttl_ms, idempotency_key, metadata, lock_delay_ms, min_hold_ms, max_lifetime_ms]
//	     …/acquire?wait=10s           the same, and waits for the lock
//	     …/acquire  slots or mode     a slot of the lock, or the whole lock: see below
//	POST /v1/locks/{lock}/renew       owner_id, lease_id, fencing_token [, ttl_ms, metadata]
//	POST /v1/locks/{lock}/adopt       owner_id, lease_id: the lease again, for a restarted holder
//	POST /v1/locks/{lock}/release     owner_id, lease_id, fencing_token [, idempotency_key]
//	POST /v1/batch                    operations: up to 1,000 acquires, renewals and releases, each with its lock
//	POST /v1/locks/{lock}/force-release   reason [, lease_id, fencing_token]: ends the lease of another, for admins
//	GET  /v1/locks/{lock}             the current or last lease, state FREE, HELD or EXPIRED, version
//	     …?wait=10s&index=7           the same, as soon as the version is not 7
//	GET  /v1/locks                    all, in pages: after, prefix, limit
//	GET  /v1/openapi.json             this API, for machines
//	GET  /metrics
//	GET  /healthz                     503: only a restart of the server helps
//	GET  /readyz                      503: it shuts down, or its store cannot be used now
//
// If the store is a lease.HealthReporter, the probes ask it for its health. For another store,
// /readyz knows only that it answers a Get.
//
// HEAD is answered like GET. A lock's name is one segment of the path, percent-encoded. The server
// also refuses a request with an unknown field or parameter, because an ignored misspelt
// idempotency_key would cost a second lease. It refuses fields in another case, repeated fields,
// and half of a surrogate pair, because JSON readers interpret them differently. Clients ignore
// unknown fields.
//
// If ttl_ms is left out, the server uses the default that Config.TTLPolicies has for the lock's
// name. If there is no default, ttl_ms is required. A ttl_ms outside of the policies' bounds is
// refused, also in a renewal.
//
// The metadata of a renewal replaces the lease's metadata; {} clears it, and without the field it
// stays unchanged.
//
// # Batches
//
// POST /v1/batch carries out many operations: {"operations":[{"acquire":{…}},{"renew":{…}},…]}. Each
// is an object with one of acquire, renew and release. Its value is the body of the single request,
// and the lock. Each result has the status that the operation would have had alone, and one of
// lease, released and problem. The results are in the order of the operations.
//
//   - Rights, prefixes, TTL policies and idempotency keys apply to each operation. Authorize is
//     called for the request, and then for each operation with the path that it would have alone.
//     Rate counts each operation; those above it are refused with 429 (rate-limited).
//   - Operations on one lock are carried out one after the other, in the order of the batch, also if
//     one of them is refused. Operations on different locks are carried out at the same time. The
//     store groups them: they share transactions and commits as if many clients had sent them.
//     Renewals of different locks are one operation of a store that is a lease.BatchRenewer.
//   - A batch does not wait. An acquire with a wait above 0s is refused with 422 (out-of-range), and
//     one with slots or mode with 400, because it can wait behind others. An acquire of a lock that
//     others wait for is refused with 503 (lock-busy-retry), so that it does not overtake them. Sent
//     alone, it can wait behind them.
//   - Operations that have not begun after StoreTimeout are refused with 503 (lock-busy-retry).
//   - A batch can be sent again if its answer was lost. Each operation then gets the answer that it
//     would get if it was sent again alone.
//   - A body that is not well-formed, is above MaxBody or has more than 1,000 operations is refused
//     as a whole, and nothing is done. By default, there is room for 1,000 operations of 260 bytes each.
//
// # Who sees the id of a lease
//
// GET shows the lease_id only to bearers of a Token with the right Admin, because anyone who knows
// it can release the lease. Only the holder should know it. A request beyond its Token's rights is
// refused with 403 and the type forbidden.
//
// # Releases by force
//
// With force-release, an admin ends the lease of another holder. The server reads the record with
// Store.Get, and then releases the claim that it found. A lease that was renewed in between is
// ended too. A successor's lease is not ended. A request that names a lease_id or a fencing_token
// ends only that lease, and can be sent again; leasehttp always names one. If it is sent again
// while the lock is kept for the lock_delay_ms, the answer depends on what it names. With a
// fencing_token, the answer is the same as before, with the time of the end as acquired_at and
// expires_at. With a lease_id it is lease-stale.
//
// A forced release does not prove that the holder has stopped: the holder detects it at its next
// renewal. If the holder asked for a lock_delay_ms, that delay counts from the forced release, as
// after an expiry. A lease of the server's own keeps the lock for that time, in the same store
// operation if the store is a lease.HandOverer. A min_hold_ms that is not over takes precedence,
// and the lock is kept only for the rest of it. The server logs one line, lease_force_released at
// Warn: outcome (released, refused, or unknown), by (Token.Name), from, lock, owner_id,
// fencing_token, reason, lock_delay_ms; never a lease_id.
//
// # Answers
//
// Every refusal by a route is a Problem, an application/problem+json body of RFC 9457. The
// Problem's type decides: the client converts it to the error of package lease that the server's
// store returned. There is one exception: if net/http cannot read a request, it answers with 400,
// 431, 501 or 505 in plain text, and closes the connection. No handler runs then. The server does
// not rewrite these answers: that would depend on their wording, and fail under TLS. The types:
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
//	421 server-not-active        lease.ErrBusy      between servers: nothing was done
//	401 unauthorized, 403        leasehttp.ErrDenied
//	503 store-unavailable, 500   any other error    the outcome is unknown
//
// An answer carries the Pglatch-Request-Id header of its request, if the request had one of at most
// 64 bytes. The client sends a new id with each sending, and rejects an answer that has another. So
// answers that come late on a connection, or are mixed up on the way, are discarded.
//
// # Waiting
//
// ?wait= puts a request in the lock's queue, first come, first served. Only the first request of
// the queue asks the store:
//
//   - at once, after a release through this server
//   - when the holder's lease must have expired
//   - every PollInterval, to detect changes by other servers on the same store; it first
//     checks whether an acquire can succeed
//
// So a grant costs one acquire, however many requests wait. On a store that is a
// lease.HandOverer it costs not even that: the release itself gives the lock to the first. A
// request leaves the queue when its client hangs up or its time is over.
//
// When its time is over, a request gets lock-held only on two conditions: the store has
// found the lock held since the request arrived, and has received no later operation on
// the lock. Otherwise the server sends one acquire to the store, as for a request that
// does not wait, for at most StoreTimeout. So a store that is silent or refuses
// operations leads to 503, never to lock-held.
//
// Several sendings of one request have one owner and one idempotency key. They wait at the place of
// the earliest, as long as one of them waits, and all get the lease that one of them gets. If another
// server on the same store granted it, they detect it within PollInterval.
//
// Requests that do not wait bypass the queue.
//
// # Several servers
//
// With Config.Peers, one server of a store is active. An Election decides which: that of
// leader/activeserver, or one of your own. The active server has all queues, and the
// others forward their requests to it over one HTTP/2 connection:
//
//	client ── request ──▶ server ── the same, by the active server's URL ──▶ active server ── store
//	client ── request ──▶ server ── the active one cannot be reached ───────────────────────▶ store
//
// So requests wait in one order, whichever server gets them. Each second, a server asks the
// active one whether it accepts forwarded requests. If that fails, or a request cannot be
// forwarded, the server answers by itself: from the store, with a queue of its own. Every such
// answer is right, because the store decides about leases. Only the order is lost: waiters of
// different servers compete.
//
//   - A request that waits moves to the next active server as soon as there is one.
//     Requests that move are queued in the order of their arrival there.
//   - A request is forwarded once at most. A server that is not active refuses it with 421
//     (server-not-active), and the server that forwarded it answers by itself.
//   - If the active server dies before its answer, the outcome is unknown, and the answer is
//     store-unavailable. Only a read is repeated by the server. Clients resend with their
//     idempotency key, as when the server that they asked dies.
//   - If the active server granted a lease and could not deliver it, a resend with its
//     idempotency key gets it. Without a key, the server releases the lease if it learns
//     in time that nobody waits.
//   - A release that took effect succeeds when it is resent with its idempotency key, even if another
//     holder has the lock by then: a store that is a lease.KeyedReleaser keeps the last such release
//     of each lock.
//   - A server that was stopped detects, when it continues, that it is not active. Its
//     answers until then are right, because the store decides.
//   - A server that answers by itself notifies the others of the locks that it changed,
//     if the store is a lease.Messenger. Their waiters and watchers then query the store.
//     Without such messages, and after changes by other programs, they detect a change by
//     polling. Do not use PollInterval < 0 with several servers.
//
// Each server checks the client's token. The active one checks it again, and calls Authorize with
// the forwarded request. Rate is checked by the server that the client asked, and again by the
// active one unless the servers have a Peers.Token or Peers.Certificate. A batch is forwarded as a
// whole, so the active one counts its operations for the client's address. A client's certificate
// counts at the active server only if the server that forwards has a certificate with the name in
// Peers.Certificate. With Peers.Token or Peers.Certificate, a server accepts forwarded requests
// only from servers that have them.
//
// Without Config.Peers, each server has queues of its own, and there is no order between the waiters
// of different servers. The first waiter of each queue checks the store every PollInterval. A release
// hands the lock to a waiter of the same server, so two servers would starve each other's waiters.
// Therefore a server whose waiter finds a lock held elsewhere tells the others that it wants the
// lock, if the store is a lease.Messenger. At its next release, the server that has the lock lets the
// others have it, and its own waiters stand back for 200 ms. So busy servers take turns of about a
// PollInterval, and no waiter starves. A server that cannot receive the messages of the others, such
// as behind a pooler in transaction mode, lets them have the lock every ten PollIntervals, for 1.6
// PollIntervals. On a store that is no lease.Messenger, only one server may have waiters for a lock:
// use Peers.
//
// # Watching
//
// A GET with ?wait= waits for a change. It is answered with the current record as soon as the
// version differs from ?index=, or when its time is over. Without ?index=, the index is 0, which is
// also the version of an unknown lock. A change by this server is answered at once. A change by
// another server is answered when that server notifies this one, or after a PollInterval. An expiry
// is answered when a sweep has found it. However many requests watch a lock, a change costs one
// read of the store. MaxWaiters requests can watch at a time, in addition to those that wait for
// locks.
//
// # Locks that several hold
//
// An acquire with slots, of 1 to 1000, asks for a slot of the lock, which that many clients may
// hold at once. With mode shared, any number of clients may hold a slot. With mode exclusive,
// it asks for the whole lock, which is granted while nobody has a slot. The guarantees, and the
// handling of requests that die, are those of lease/shared, also with several servers on one
// store.
//
// The answer's lock is the slot's own name, job::slot::0002; the whole lock's is job::slot::0000.
// Renew and release that name, and list the prefix job::slot:: to see the holders of all slots. The
// answer's share_of is the lock, and its fence rises over all of the lock's shares. Nothing else
// can be leased by such a name. A lease that is acquired without slots and mode is of another lock,
// even if it has this lock's name.
//
// ?wait= is first come, first served here too, whatever each request asks for: a later request
// waits behind one that needs more free slots. A waiter is notified of a slot that was released
// through this server; else it checks each PollInterval. If the lock is taken, a request that does
// not wait is answered at once; else it waits behind others for at most a second. If a request
// with an idempotency key is sent again, to any server, the new sending gets the share of an
// earlier one, even if other requests wait between them. It looks for that share after
// PollInterval, then after twice that time, and so on, and when it is refused. A request with mode
// exclusive and an idempotency key that gives up keeps others out for 5 s, because it can be
// resent.
//
// # Who may ask
//
// Tokens are bearer tokens and the names of client certificates. Each has a right and a prefix of
// names; any other request is refused with 403. A request that passes the program's Authorize has
// every right, except the Admin right to see a lease_id.
//
// Without Tokens and Authorize, the server answers only clients on its own machine, and no request
// with a header that proxies add. It cannot distinguish a proxy on the machine that adds no header
// from a client: behind any proxy, set Tokens. On a Unix socket, the file's permissions decide
// which clients are answered; only requests through a proxy are refused. On an address that is not
// loopback, Serve requires TLS and either Tokens or Authorize, or AllowInsecure.
package leaseserver
