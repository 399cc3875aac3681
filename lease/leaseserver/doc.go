// Package leaseserver is a lock server: fenced leases over HTTP. It runs in front of any
// lease.Store:
//
//	store, err := sqlite.Open(ctx, "locks.db", sqlite.Config{})
//	…
//	server, err := leaseserver.New(leaseserver.Config{Store: store})
//	…
//	err = server.ListenAndServe(ctx, "127.0.0.1:8080") // until ctx ends
//
// Clients in Go use lease/leasehttp, which documents what happens when messages are lost. Any
// other HTTP client can use these routes.
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
//	POST /v1/locks/{lock}/force-release   reason [, lease_id, fencing_token]: ends another holder's lease, for admins
//	GET  /v1/locks/{lock}             the current or last lease, state FREE, HELD or EXPIRED, version
//	     …?wait=10s&index=7           the same, as soon as the version is not 7
//	GET  /v1/locks                    all, in pages: after, prefix, limit
//	GET  /v1/openapi.json             this API, for machines
//	GET  /metrics
//	GET  /healthz                     503: only a restart of the server helps
//	GET  /readyz                      503: it shuts down, or its store cannot be used now
//
// If the store is a lease.HealthReporter, the probes query its health. With any other store,
// /readyz checks only that it answers a Get.
//
// HEAD is answered like GET. A lock's name is one segment of the path, percent-encoded. The server
// refuses a request with an unknown field or parameter: if it ignored a misspelt idempotency_key,
// the client could get a second lease. It also refuses fields in the wrong case, repeated fields,
// and half of a surrogate pair, because JSON parsers differ in how they interpret them. Clients
// ignore unknown fields.
//
// If ttl_ms is left out, the server uses the default that Config.TTLPolicies has for the lock's
// name. If there is no default, ttl_ms is required. A ttl_ms outside of the policies' bounds is
// refused, in renewals too.
//
// The metadata of a renewal replaces the lease's metadata. {} clears it. If the renewal has no
// such field, the metadata stays unchanged.
//
// # Batches
//
// POST /v1/batch carries out many operations: {"operations":[{"acquire":{…}},{"renew":{…}},…]}. Each
// operation is an object with one of the fields acquire, renew and release. The field's value is the
// body of the single request, plus the lock. Each result has the status that the operation would
// have as a single request, and one of lease, released and problem. The results are in the order of
// the operations.
//
//   - Rights, prefixes, TTL policies and idempotency keys apply to each operation. Authorize is
//     called for the request, and then for each operation with the path that it would have as a
//     single request. Rate counts each operation; operations above the rate are refused with 429
//     (rate-limited).
//   - Operations on one lock are carried out one after the other, in the order of the batch, even if
//     one of them is refused. Operations on different locks are carried out concurrently. The store
//     groups them: they share transactions and commits as if many clients had sent them. If the
//     store is a lease.BatchRenewer, renewals of different locks are one operation.
//   - A batch does not wait. An acquire with a wait above 0s is refused with 422 (out-of-range). An
//     acquire with slots or mode is refused with 400, because it may have to wait behind others. An
//     acquire of a lock that others wait for is refused with 503 (lock-busy-retry), so that it does
//     not overtake them. As a single request, it can wait behind them.
//   - Operations that have not begun after StoreTimeout are refused with 503 (lock-busy-retry).
//   - A batch can be sent again if its answer was lost. Each operation then gets the answer that it
//     would get if it were sent again as a single request.
//   - A body that is malformed, is larger than MaxBody or has more than 1,000 operations is refused as a
//     whole, and nothing is done. The default MaxBody has room for 1,000 operations of 260 bytes each.
//
// # Who sees the id of a lease
//
// GET shows the lease_id only to bearers of a Token with the Admin right, because anyone who knows
// the ID can release the lease. Apart from admins, only the holder should know it. A request that
// its Token does not allow is refused with 403 and the type forbidden.
//
// # Releases by force
//
// With force-release, an admin ends the lease of another holder. The server reads the record with
// Store.Get, and then releases the claim that it found. If the lease was renewed in between, it
// still ends. If a successor got a lease in between, that lease does not end. A request that
// names a lease_id or a fencing_token ends only that lease, and can be sent again; leasehttp
// always names one. If it is sent again while the lock_delay_ms is not over, the answer depends
// on what it names. With a fencing_token, the answer is the same as before, with the time of the
// end as acquired_at and expires_at. With a lease_id, the answer is lease-stale.
//
// A forced release does not prove that the holder has stopped: the holder detects the end at its
// next renewal. If the holder asked for a lock_delay_ms, that delay counts from the forced
// release, as after an expiry. For that time the server itself takes a lease on the lock, in the
// same store operation if the store is a lease.HandOverer. If the min_hold_ms is not over, it
// takes precedence: the lock then stays unavailable only for the rest of the min_hold_ms. The
// server logs one line, lease_force_released at Warn: outcome (released, refused, or unknown),
// by (Token.Name), from, lock, owner_id, fencing_token, reason, lock_delay_ms; never a lease_id.
//
// # Answers
//
// If a route refuses a request, the answer is a Problem, an application/problem+json body of RFC
// 9457. From the Problem's type, the client derives the error of package lease that the server's
// store returned. There is one exception: if net/http cannot read a request, it answers with 400,
// 431, 501 or 505 in plain text, and closes the connection, without running a handler. The server
// does not rewrite these answers, because that would depend on their wording, and fail under TLS.
// The types are:
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
// 64 bytes. The client uses a new ID each time it sends a request, and rejects an answer with a
// different ID. So it discards answers that come late on a connection, or that are mixed up on the
// way.
//
// # Waiting
//
// With ?wait=, a request waits in the lock's queue, first come, first served. Only the first
// request of the queue queries the store:
//
//   - at once, after a release through this server
//   - when the holder's lease must have expired
//   - every PollInterval, to detect changes by other servers on the same store; it first
//     checks whether an acquire can succeed
//
// So a grant costs one acquire, however many requests wait. With a store that is a
// lease.HandOverer, it does not even cost that: the release itself hands the lock to the
// first request. A request leaves the queue when its client disconnects or its wait is over.
//
// When its wait is over, a request gets lock-held only if two conditions are met: the
// store has found the lock held since the request arrived, and has received no
// operation on the lock after that. Otherwise the server sends one acquire to the
// store, as for a request that does not wait, for at most StoreTimeout. So a store
// that is silent or refuses operations leads to 503, never to lock-held.
//
// A client may send a request several times, with the same owner and idempotency key. As long as any
// of these copies waits, all share the earliest one's place in the queue. All of them get the lease
// that one of them gets. If another server on the same store granted it, they detect that within
// PollInterval.
//
// Requests that do not wait bypass the queue.
//
// # Several servers
//
// With Config.Peers, one of the servers of a store is active. An Election decides which
// one: the Election of leader/activeserver, or your own implementation. The active
// server has all queues, and the others forward their requests to it over one HTTP/2
// connection:
//
//	client ── request ──▶ server ── the same, by the active server's URL ──▶ active server ── store
//	client ── request ──▶ server ── the active one cannot be reached ───────────────────────▶ store
//
// So requests wait in a single order, whichever server receives them. Once a second, each
// server asks the active one whether it accepts forwarded requests. If that fails, or if a
// request cannot be forwarded, the server answers on its own: from the store, with a queue of
// its own. Every such answer is correct, because the store decides about leases. Only the
// order is lost: waiters of different servers compete.
//
//   - A waiting request moves to the next active server as soon as there is one.
//     The new server queues these requests in the order in which they arrive.
//   - A request is forwarded at most once. A server that is not active refuses it with 421
//     (server-not-active), and the server that forwarded it answers on its own.
//   - A request whose headers are larger than 16 KiB is not forwarded: the server refuses it
//     with 400 (invalid-request). HTTP/2 counts 32 bytes for each header in addition.
//   - A request is for the process that the Election names, if that is an IdentifyingElection. Another process
//     that has its address by now refuses the request, even if it is the active server of another store.
//   - If the active server dies before it answers, the outcome is unknown, and the client
//     gets store-unavailable. The forwarding server repeats only reads. Clients resend with
//     their idempotency key, as they do when the server that they use dies.
//   - If the active server granted a lease but could not deliver it, a resend with the
//     same idempotency key gets it. If there is no key, the server releases the lease,
//     provided that it detects in time that the client is gone.
//   - A release that took effect succeeds when it is resent with its idempotency key, even if another
//     holder has the lock by then: a store that is a lease.KeyedReleaser keeps the last such release
//     of each lock. If that holder has released the lock with a key of its own by then, the answer of
//     another server is lease-stale.
//   - A server that was stopped detects, after it continues, that it is not active.
//     Its answers until then are correct, because the store decides.
//   - A server that answers on its own notifies the others of the locks that it changed,
//     if the store is a lease.Messenger. Their waiters and watchers then query the store.
//     Without such messages, and after changes by other programs, they detect a change by
//     polling. Do not use PollInterval < 0 with several servers.
//
// Each server checks the client's token. The active one checks it again, and calls Authorize with
// the forwarded request. The server that received the request checks Rate. The active server
// checks it again, unless the servers have a Peers.Token or Peers.Certificate. A batch is
// forwarded as a whole, so the active server counts its operations for the client's address. The
// active server accepts a client's certificate only if the forwarding server has a certificate
// with the name in Peers.Certificate. With Peers.Token or Peers.Certificate, a server accepts
// forwarded requests only from servers that have them.
//
// Without Config.Peers, each server has queues of its own, and there is no order between the waiters
// of different servers. The first waiter of each queue checks the store every PollInterval. A release
// hands the lock to a waiter of the same server, so one server could starve the waiters of another.
// Therefore, if the store is a lease.Messenger, a server whose waiter finds a lock held elsewhere
// notifies the others that it wants the lock. At its next release, the server that has the lock then
// lets the others have it, and its own waiters hold back for 200 ms. So busy servers take turns of
// about a PollInterval, and no waiter starves. A server may be unable to receive the messages of the
// others, for example behind a pooler in transaction mode. In that case, every ten PollIntervals it
// lets the others have the lock for 1.6 PollIntervals. With a store that is not a lease.Messenger,
// only one server may have waiters for a lock: use Peers.
//
// # Watching
//
// A GET with ?wait= waits for a change. It is answered with the current record as soon as the
// version differs from ?index=, or when its wait is over. Without ?index=, the index is 0, which is
// also the version of an unknown lock. The server reports at once what was changed through it. It
// reports a change by another server when that server notifies it, or after a PollInterval. It
// reports an expiry when a sweep has found it. A change costs one read of the store, however many
// requests watch the lock. MaxWaiters requests can watch at a time, in addition to those that wait
// for locks.
//
// # Locks that several hold
//
// An acquire with slots = n, 1 to 1000, requests one of n slots of the lock, so that n
// clients may hold the lock at once. With mode shared, any number of clients may hold a slot.
// With mode exclusive, the acquire requests the whole lock, which is granted while nobody has
// a slot. The guarantees, and what happens to requests that die, are those of lease/shared,
// even with several servers on one store.
//
// In the answer, lock is the slot's own name: job::slot::0002 for slot 2 of job, and
// job::slot::0000 for the whole lock. To renew and release the lease, use that name. To see the
// holders of all slots, list the prefix job::slot::. In the answer, share_of is the lock, and
// fence rises across all shares of the lock. Leases on such names cannot be acquired in any other
// way. A lease that is acquired without slots and mode is a different lock, even if it has this
// lock's name.
//
// ?wait= is first come, first served here too, whatever each request needs: a later request waits
// behind one that needs more free slots. A waiter is notified of a slot that was released through
// this server; otherwise it checks every PollInterval. If the lock is taken, a request without
// ?wait= is answered at once; otherwise it waits behind others for at most a second. If a request
// with an idempotency key is sent again, to any server, it gets the share that it got before, even
// if other requests are ahead of it. It looks for that share after PollInterval, then after twice
// that time, and so on. It also looks when it is refused. If a request with mode exclusive and an
// idempotency key gives up, it keeps others out for 5 s, because it can be resent.
//
// # Who may ask
//
// Tokens are bearer tokens and the names of client certificates. Each has a right and a prefix of
// names; a request that they do not allow is refused with 403. A request that the program's
// Authorize accepts has every right, except the Admin right to see a lease_id.
//
// Without Tokens and Authorize, the server answers only clients on its own machine, and no request
// with a header that proxies add. If a proxy on the machine adds no such header, the server cannot
// distinguish it from a client: behind any proxy, set Tokens. On a Unix socket, the file's
// permissions decide which clients are answered. Only requests that come through a proxy are
// refused. On an address that is not loopback, Serve requires TLS and either Tokens or Authorize,
// or AllowInsecure.
package leaseserver
