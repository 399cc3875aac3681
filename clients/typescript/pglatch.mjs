// @ts-check
/**
 * Client of a pglatch lock server: fenced leases over HTTP. README.md says what it guarantees.
 * Node 18 or later, and nothing but what it comes with. Times are in milliseconds. Types are in pglatch.d.mts.
 */
import { randomUUID } from 'node:crypto'
import { hostname, uptime } from 'node:os'
import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'

const types = 'https://github.com/pglatch/pglatch/problems/', longPoll = 20_000
const booted = process.platform === 'linux' ? () => uptime() * 1000 : () => performance.now() // elsewhere uptime follows the wall clock

/** A moment on two clocks that nobody sets: the first stands still while a machine is suspended, the second goes on (on Linux), in steps of 10 ms. */
const now = () => ({ run: performance.now(), up: booted() })
/** @typedef {ReturnType<typeof now>} Moment */
/** @param {Moment} m @param {number} ms @returns {Moment} */ const after = (m, ms) => ({ run: m.run + ms, up: m.up + ms })
/** What is left until m; 0 if it has passed on either clock. @param {Moment} m */
const until = (m) => Math.max(Math.min(m.run - performance.now(), m.up - booted()), 0)
/** @param {number} ms */ const jitter = (ms) => ms * (0.5 + Math.random())

/** All errors of this module. */ export class PglatchError extends Error { }
/** No answer came that says what happened: the request may have been carried out. */ export class OutcomeUnknown extends PglatchError { }
/** No server took the request, or a request that only reads got no answer. Nothing was done. */ export class Unavailable extends PglatchError { }
/** The lease can no longer be trusted. The cause says why. */ export class Lost extends PglatchError { }
/** The server refused; nothing was done. `problem` is its answer, of RFC 9457. */
export class Problem extends PglatchError {
  /** @param {Record<string, any>} problem */
  constructor(problem) {
    super(problem.detail || problem.title || 'refused')
    this.problem = problem
    /** Who holds the lock. @type {string} */
    this.owner = problem.owner_id ?? ''
    /** When to try again. @type {number} */
    this.retry = problem.recommended_retry_ms ?? 100
  }
}
/** Somebody else has the lock, or a delay keeps it. */ export class Held extends Problem { }
/** The claim is not the current one. */ export class Stale extends Problem { }
/** The lease expired. */ export class Expired extends Problem { }
/** Nothing is known of the lock. */ export class NotFound extends Problem { }
/** The request is not as it must be. */ export class Invalid extends Problem { }
/** Try again. */ export class Busy extends Problem { }
/** The server's store has to be set up. */ export class NotReady extends Problem { }
/** The server wants another token, or does not allow the request. */ export class Denied extends Problem { }

/** @type {Record<string, typeof Problem>} */
const kinds = {
  'lock-held': Held, 'lease-stale': Stale, 'lease-expired': Expired, 'lock-not-found': NotFound, 'lock-busy-retry': Busy, 'rate-limited': Busy,
  'store-not-ready': NotReady, unauthorized: Denied, forbidden: Denied, 'invalid-request': Invalid, 'out-of-range': Invalid,
  'body-too-large': Invalid, 'unsupported-media-type': Invalid, 'no-such-route': Invalid, 'method-not-allowed': Invalid,
}
const elsewhere = [401, 403, 429, 503] // another server may answer otherwise
const ofLease = [Held, Stale, Expired, NotFound] // any other answer says nothing of an earlier sending

/**
 * @typedef {object} ClientOptions
 * @property {string} [token] bearer token; only over https or to this machine, unless allowInsecure
 * @property {string} [owner] of leases; by default the host's name, the process id and a random part
 * @property {number} [ttl] time to live of leases; 15 s
 * @property {number} [margin] kept free at the end of each lease; a tenth of it
 * @property {number} [timeout] of each sending, beside the time that it waits for a lock; 10 s
 * @property {number} [resends] how often a request is sent again when its answer was lost; 3
 * @property {boolean} [allowInsecure]
 */
/**
 * @typedef {object} AcquireOptions
 * @property {number} [wait] for the lock, also while no server can be reached; 30 s
 * @property {number} [ttl]
 * @property {string} [owner]
 * @property {string} [idempotencyKey] the same for what is to be one request; by default a new one
 * @property {Record<string, string>} [metadata]
 * @property {number} [lockDelay]
 * @property {number} [minHold]
 * @property {number} [maxLifetime]
 */

/** Asks lock servers for leases: one, or several before one store, of which another is asked when one fails. */
export class Client {
  #current = 0 // index of the base that is asked

  /** @param {string | string[]} baseURLs @param {ClientOptions} [options] */
  constructor(baseURLs, options = {}) {
    this.bases = [baseURLs].flat().map((u) => u.replace(/\/+$/, ''))
    const urls = this.bases.map((u) => new URL(u))
    if (!urls.length || urls.some((u) => !/^https?:$/.test(u.protocol) || u.search || u.username)) throw new TypeError('baseURLs: use one or more such as http://127.0.0.1:8080')
    if (options.token && !options.allowInsecure && urls.some((u) => u.protocol === 'http:' && !/^(localhost|127\.[\d.]+|\[::1\])$/.test(u.hostname))) {
      throw new TypeError('token would be sent in the clear: use https, or set allowInsecure')
    }
    this.options = { owner: `${hostname().slice(0, 64)}-${process.pid}-${randomUUID().slice(0, 8)}`, ttl: 15_000, timeout: 10_000, resends: 3, ...options }
    /** @type {Record<string, string>} */
    this.headers = { 'content-type': 'application/json', ...(options.token && { authorization: `Bearer ${options.token}` }) }
  }

  /** Acquires a lease, and waits for it. Held, or why not, after that. Start its heartbeat, or use hold. @param {string} name @param {AcquireOptions} [o] @returns {Promise<Lease>} */
  async acquire(name, o = {}) {
    const ttl = o.ttl ?? this.options.ttl
    const body = {
      owner_id: o.owner ?? this.options.owner, ttl_ms: ttl, idempotency_key: o.idempotencyKey ?? randomUUID(), metadata: o.metadata,
      lock_delay_ms: o.lockDelay, min_hold_ms: o.minHold, max_lifetime_ms: o.maxLifetime,
    }
    const end = after(now(), o.wait ?? 30_000)
    for (let attempt = 0, unknown = /** @type {unknown} */ (undefined); ; attempt++) { // the last: of an earlier request, which can have been granted
      const poll = Math.min(until(end), longPoll), asked = performance.now()
      try {
        const { answer, sent } = await this._call('acquire', name, body, poll, after(end, this.options.timeout))
        return new Lease(this, answer, ttl, this._deadline(answer, sent))
      } catch (e) {
        unknown = e instanceof OutcomeUnknown ? e : e instanceof Held ? undefined : unknown
        if (!(e instanceof PglatchError) || e instanceof Invalid || e instanceof Denied) throw unknown ?? e
        if (e instanceof Unavailable && attempt === 0) console.warn(`pglatch: ${e.message}: trying again for ${Math.round(until(end) / 1000)} s`)
        const pause = e instanceof Held && poll > 0 ? Math.max(e.retry - (performance.now() - asked), 0) : e instanceof Problem ? e.retry : jitter(Math.min(100 * 2 ** Math.min(attempt, 4), 1000))
        if (until(end) <= pause) throw unknown ?? e
        await sleep(pause)
      }
    }
  }

  /** Asks once. Held if somebody else has the lock. @param {string} name @param {AcquireOptions} [o] */
  tryAcquire(name, o = {}) { return this.acquire(name, { ...o, wait: 0 }) }

  /** A lease with a heartbeat, for `await using`. @param {string} name @param {AcquireOptions} [o] */
  async hold(name, o = {}) {
    const lease = await this.acquire(name, o)
    lease.heartbeat()
    return lease
  }

  /** Runs work under a lease, and releases it. Rejects with Lost if it was lost meanwhile. @template T @param {string} name @param {(lease: Lease) => Promise<T>} work @param {AcquireOptions} [o] */
  async do(name, work, o = {}) {
    const lease = await this.hold(name, o)
    try {
      const result = await work(lease)
      if (!lease.released) lease.check()
      return result
    } finally {
      await lease.release().catch(() => { }) // if it fails, the lease expires
    }
  }

  /** Prolongs a lease to ttl from now; never shortens it. @param {Lease} lease @param {number} [ttl] @param {Moment} [limit] */
  async renew(lease, ttl = lease.ttl, limit = undefined) {
    const { answer, sent } = await this._call('renew', lease.name, { ...lease.claim, ttl_ms: ttl }, 0, limit)
    lease._renewed(this._deadline(answer, sent))
  }

  /** What is known of a lock, as the API answers it; fencing_token is a bigint. @param {string} name @returns {Promise<Record<string, any>>} */
  async get(name) { return (await this._call('', name)).answer }

  /**
   * Until when a lease is trusted: counted from before the request was sent, because the store cannot have counted from an earlier moment.
   * @param {Record<string, any>} answer @param {Moment} sent @returns {Moment}
   */
  _deadline(answer, sent) {
    const remaining = answer.ttl_remaining_ms ?? 0
    let start = after(sent, Math.max(answer.waited_ms ?? 0, 0))
    if (until(start) > 0) start = now()
    return after(start, remaining - (this.options.margin ?? remaining / 10))
  }

  /**
   * Sends a request, again if its answer was lost. `sent` is the moment before the sending that was answered.
   * @param {string} verb @param {string} name @param {Record<string, any>} [body] @param {number} [wait] @param {Moment} [limit]
   * @returns {Promise<{answer: Record<string, any>, sent: Moment}>}
   */
  async _call(verb, name, body, wait = 0, limit = undefined) {
    if (name === '.' || name === '..') throw new Invalid({ detail: `a lock cannot be called ${name}` })
    const path = `/v1/locks/${encodeURIComponent(name)}${verb && '/' + verb}`
    const end = after(now(), wait)
    let known = true, error = /** @type {unknown} */ (undefined)
    for (let resend = 0; resend <= this.options.resends; resend++) {
      if (resend) await sleep(jitter(25 * 2 ** resend))
      const left = Math.floor(until(end))
      const bound = Math.min(this.options.timeout + left, limit ? until(limit) : Infinity)
      if (bound <= 0) break
      const base = this.#current, sent = now()
      try {
        const { status, media, text } = await this._exchange(this.bases[base] + path + (left > 0 ? `?wait=${left}ms` : ''), body, bound)
        const answer = /json$/.test(media) ? parse(text) : { title: `${status} without an answer` }
        if (status === 200 && media === 'application/json') {
          check(name, body, answer)
          return { answer, sent }
        }
        const kind = kinds[String(answer.type).replace(types, '')]
        error = kind && (known || ofLease.includes(kind)) ? new kind({ ...answer, status }) : new Error(`${status} ${answer.title}`)
      } catch (e) {
        error = e
      }
      known &&= error instanceof Problem || !body || notSent(error)
      if ((!(error instanceof Problem) || elsewhere.includes(error.problem.status)) && this.#current === base) this.#current = (base + 1) % this.bases.length
      if (error instanceof Problem) throw error
    }
    const request = `${verb || 'get'} ${name}`, why = /** @type {any} */ (error)?.cause?.code ?? error
    if (!known || error === undefined) throw new OutcomeUnknown(`${request}: outcome unknown: ${error}`, { cause: error })
    throw new Unavailable(`${request}: no lock server answers at ${this.bases.join(', ')}: ${why}; nothing was done${notSent(error) ? '; start one: pglatch serve locks' : ''}`)
  }

  /** Sends a request once. @param {string} url @param {Record<string, any> | undefined} body @param {number} timeout */
  async _exchange(url, body, timeout) {
    const id = randomUUID(), abort = new AbortController()
    const timer = setTimeout(() => abort.abort(new Error(`no answer in ${timeout} ms`)), timeout)
    try {
      const headers = { ...this.headers, 'pglatch-request-id': id }, signal = abort.signal
      const response = await fetch(url, { method: body ? 'POST' : 'GET', body: body && format(body), headers, redirect: 'manual', signal })
      const text = await response.text()
      if ((response.headers.get('pglatch-request-id') ?? id) !== id) throw new Error('the answer is of another request')
      return { status: response.status, media: (response.headers.get('content-type') ?? '').split(';')[0].trim(), text }
    } finally {
      clearTimeout(timer)
    }
  }
}

/** Reports whether there was no connection to send a request on. @param {any} e */
const notSent = (e) => ['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'UND_ERR_CONNECT_TIMEOUT'].includes(e?.cause?.code)

/** Tokens are bigints: a number of JavaScript keeps 53 bits. @param {Record<string, any>} body */
const format = (body) => JSON.stringify(body, (_, v) => typeof v === 'bigint' ? `bigint:${v}` : v).replace(/"fencing_token":"bigint:(\d+)"/, '"fencing_token":$1')
/** @param {string} text @returns {Record<string, any>} */
const parse = (text) => JSON.parse(text.replace(/"fencing_token"\s*:\s*(\d+)/g, '"fencing_token":"bigint:$1"'), (k, v) => k === 'fencing_token' && /^bigint:\d+$/.test(v) ? BigInt(v.slice(7)) : v)

/** Notices what stands between client and server and mixes up answers. @param {string} name @param {Record<string, any> | undefined} body @param {Record<string, any>} answer */
function check(name, body, answer) {
  const claim = ['owner_id', 'lease_id', 'fencing_token'].filter((key) => body && key in body)
  if (answer.lock !== name || claim.some((key) => answer[key] !== body?.[key]) || body && (!answer.lease_id || typeof answer.fencing_token !== 'bigint')) {
    throw new Error('the answer is of another request')
  }
}

/** A lease that this process acquired. Give `token` to what the lease protects, which refuses a token below the greatest it has seen. */
export class Lease {
  #client; #until; #ended = false; #abort = new AbortController()
  /** @type {(NodeJS.Timeout | undefined)[]} of the heartbeat: the next renewal, the deadline */ #timers = []
  /** The result of release. @type {Promise<void> | undefined} */ released

  /** @param {Client} client @param {Record<string, any>} answer @param {number} ttl @param {Moment} deadline */
  constructor(client, answer, ttl, deadline) {
    this.#client = client
    this.#until = deadline
    /** @type {string} */ this.name = answer.lock
    /** @type {bigint} */ this.token = answer.fencing_token
    this.claim = { owner_id: answer.owner_id, lease_id: answer.lease_id, fencing_token: this.token }
    this.ttl = ttl
  }

  /** Aborted when the lease is released or lost; its reason is a Lost then. @returns {AbortSignal} */
  get signal() { return this.#abort.signal }
  /** For how long the lease can be trusted without another renewal; 0 = no longer. */
  remaining() { return this.#ended ? 0 : until(this.#until) }
  /** Throws Lost unless the lease can be trusted. It looks at the clock: call it before each act. */
  check() {
    if (this.remaining() <= 0) throw this.signal.reason instanceof Lost ? this.signal.reason : this.#lose(this.#ended ? 'it was released' : 'it was not renewed in time')
  }

  /** Renews every interval (a third of the TTL) until the lease is released or lost: then `signal` is aborted, in time before the server can give it to another. @param {number} [interval] */
  heartbeat(interval = this.ttl / 3) {
    let failures = 0
    const next = () => {
      const regular = interval * (0.9 + Math.random() / 5)
      const pause = failures ? Math.min(regular, jitter(interval / 8 * 2 ** Math.min(failures - 1, 3))) : regular
      this.#timers[0] = setTimeout(renew, Math.min(pause, this.remaining())).unref()
    }
    const renew = async () => {
      if (this.remaining() <= 0) return
      try {
        await this.#client.renew(this, this.ttl, this.#until)
        failures = 0
      } catch (e) {
        if (e instanceof Stale || e instanceof Expired || e instanceof NotFound) return void this.#lose(e)
        failures++
      }
      if (!this.#ended) next()
    }
    const guard = () => {
      if (this.remaining() <= 0) return void this.#lose('it was not renewed in time')
      this.#timers[1] = setTimeout(guard, this.remaining()).unref()
    }
    next()
    guard()
  }

  /** Ends the heartbeat and the lease; further calls return the promise of the first. @returns {Promise<void>} */
  release() {
    this.released ??= (async () => {
      this.#end(new PglatchError(`lease on ${this.name} was released`))
      await this.#client._call('release', this.name, { ...this.claim, idempotency_key: randomUUID() }, 0, after(now(), this.#client.options.timeout))
    })()
    return this.released
  }
  /** Releases, for `await using`. */
  async [Symbol.asyncDispose]() { await this.release().catch(() => { }) }

  /** @param {Moment} deadline */
  _renewed(deadline) { if (until(deadline) > until(this.#until)) this.#until = deadline }
  /** @param {unknown} cause */
  #lose(cause) {
    const lost = new Lost(`lease on ${this.name}: ${cause}`, { cause })
    this.#end(lost)
    return lost
  }
  /** @param {Error} reason */
  #end(reason) {
    this.#ended = true
    this.#timers.forEach(clearTimeout)
    this.#abort.abort(reason)
  }
}
