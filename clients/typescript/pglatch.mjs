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
const maxBatch = 1000, maxBatchBody = 192 << 10 // operations and bytes of a batch; a server takes 256 KiB by default
const plainFor = 60_000 // for how long a server that took no batch gets plain requests
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
/** @param {Record<string, any>} answer */
const kindOf = (answer) => {
  const type = String(answer.type).replace(types, '')
  return Object.hasOwn(kinds, type) ? kinds[type] : undefined
}

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
 * @property {number} [slots] asks for one of so many slots of the lock
 * @property {'shared' | 'exclusive'} [mode] shared: any number hold the lock; exclusive: one holds all of it
 * @property {Record<string, string>} [metadata]
 * @property {number} [lockDelay]
 * @property {number} [minHold]
 * @property {number} [maxLifetime]
 */

/** Asks lock servers for leases: one, or several before one store, of which another is asked when one fails. */
export class Client {
  #current = 0 // index of the base that is asked
  /** Until when a base gets no batches. @type {(Moment | undefined)[]} */ #plain = []
  /** Leases whose heartbeats wait: when the next one is due, and how much earlier it may be. @type {Map<Lease, { due: Moment, early: number }>} */ _due = new Map()

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
    const ttl = o.ttl ?? this.options.ttl, body = this.#terms(o)
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

  /**
   * Asks once for each of many locks, in as few requests as hold them. The result has, for each name in order, a Lease or the error that tryAcquire would throw.
   * The options are the same for all. Without an idempotencyKey, each gets its own. @param {Iterable<string>} names @param {Omit<AcquireOptions, 'wait'>} [o]
   * @returns {Promise<(Lease | PglatchError)[]>}
   */
  async acquireAll(names, o = {}) {
    if (typeof names === 'string') throw new TypeError('names: give a list of names; for one lock, use tryAcquire')
    const ttl = o.ttl ?? this.options.ttl, limit = after(now(), this.options.timeout)
    const results = await this.#callAll(Array.from(names, (name) => new Call('acquire', name, this.#terms(o), 0, limit)))
    return results.map((r) => r instanceof PglatchError ? r : new Lease(this, r.answer, ttl, this._deadline(r.answer, r.sent)))
  }

  /**
   * Takes over a lease that this program had before a restart, by the name, owner and id of its Lease. Stale, Expired or NotFound if it is over. This does not
   * prolong the lease: renew it, or start its heartbeat. The earlier process must have ended.
   * @param {string} name @param {string} owner @param {string} id @param {{ ttl?: number }} [o]
   */
  async adopt(name, owner, id, o = {}) {
    const { answer, sent } = await this._call('adopt', name, { owner_id: owner, lease_id: id })
    return new Lease(this, answer, o.ttl ?? this.options.ttl, this._deadline(answer, sent))
  }

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

  /** Renews many leases, in as few requests as hold them. The result has, for each in order, the Lease or the error that renew would throw. @param {Iterable<Lease>} leases @param {number} [ttl] @returns {Promise<(Lease | PglatchError)[]>} */
  async renewAll(leases, ttl) {
    const all = leasesOf(leases), limit = (/** @type {Lease} */ l) => after(now(), Math.min(l.remaining() || Infinity, this.options.timeout))
    const results = await this.#callAll(all.map((l) => new Call('renew', l.name, { ...l.claim, ttl_ms: ttl ?? l.ttl }, 0, limit(l))))
    return results.map((r, i) => {
      if (r instanceof PglatchError) return r
      all[i]._renewed(this._deadline(r.answer, r.sent))
      return all[i]
    })
  }

  /** Releases many leases, in as few requests as hold them. The result has, for each in order, the Lease or the error that release would throw. @param {Iterable<Lease>} leases @returns {Promise<(Lease | PglatchError)[]>} */
  async releaseAll(leases) {
    const all = leasesOf(leases), limit = after(now(), this.options.timeout), first = [...new Set(all)].filter((l) => !l.released)
    const calls = first.map((l) => new Call('release', l.name, { ...l.claim, idempotency_key: randomUUID() }, 0, limit))
    const sent = Promise.resolve().then(() => this.#callAll(calls)) // after their heartbeats have ended
    first.forEach((l, i) => l._release(sent.then(() => { doneOf(calls[i]) })))
    return Promise.all(all.map((l) => Promise.resolve(l.released).then(() => l, (e) => { if (e instanceof PglatchError) return e; throw e })))
  }

  /** What is known of a lock, as the API answers it; fencing_token is a bigint. @param {string} name @returns {Promise<Record<string, any>>} */
  async get(name) { return (await this._call('', name)).answer }

  /** The body of an acquire. @param {AcquireOptions} o */
  #terms(o) {
    if (o.slots !== undefined && !Number.isInteger(o.slots)) throw new Invalid({ detail: `slots is ${o.slots}: use a whole number` })
    return {
      owner_id: o.owner ?? this.options.owner, ttl_ms: o.ttl ?? this.options.ttl, idempotency_key: o.idempotencyKey ?? randomUUID(), slots: o.slots, mode: o.mode,
      metadata: o.metadata, lock_delay_ms: o.lockDelay, min_hold_ms: o.minHold, max_lifetime_ms: o.maxLifetime,
    }
  }

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

  /** Sends a request, again if its answer was lost. @param {string} verb @param {string} name @param {Record<string, any>} [body] @param {number} [wait] @param {Moment} [limit] */
  async _call(verb, name, body, wait = 0, limit = undefined) {
    const call = new Call(verb, name, body, wait, limit)
    await this._alone(call)
    return doneOf(call)
  }

  /** Carries out many calls; the results are in their order. A batch has one call of a lock; the lock's next call follows the answer. @param {Call[]} calls */
  async #callAll(calls) {
    for (let rest = calls.filter((c) => !c.result); rest.length;) {
      /** @type {Map<string, Call>} */ const first = new Map()
      /** @type {Call[]} */ const later = []
      for (const c of rest) first.has(c.name) ? later.push(c) : first.set(c.name, c)
      await each(groups(first.values()), (group) => this._together(group))
      rest = later
    }
    return calls.map((c) => /** @type {Done | PglatchError} */ (c.result))
  }

  /** Renews a lease whose heartbeat is due, in one batch with those that are due soon and trusted for about as long. @param {Lease} lease */
  async _beat(lease) {
    const all = [lease], left = lease.remaining()
    if (this._due.delete(lease)) {
      for (const [other, { due, early }] of this._due) {
        if (until(due) > early || 4 * Math.min(left, other.remaining()) < 3 * Math.max(left, other.remaining())) continue
        this._due.delete(other)
        all.push(other)
      }
    }
    await this.#callAll(all.map((l) => l._renewal()))
  }

  /** Sends a call in requests of its own until it has a result. @param {Call} call */
  async _alone(call) {
    while (!call.result && call.sendings <= this.options.resends) {
      await call.pause()
      const left = Math.floor(until(call.end))
      const bound = Math.min(this.options.timeout + left, call.limit ? until(call.limit) : Infinity)
      if (bound <= 0) break
      call.sendings++
      const base = this.#current, sent = now()
      let status = 0
      try {
        const reply = await this._exchange(this.bases[base] + call.path + (left > 0 ? `?wait=${left}ms` : ''), call.data, bound)
        status = reply.status
        call.settle(status, isGood(reply), decode(reply), sent)
      } catch (e) {
        call.lose(e)
      }
      if (!call.result || elsewhere.includes(status)) this.#leave(base)
    }
    call.result ??= call.unanswered(this.bases)
    call.done()
  }

  /**
   * Sends calls in a batch, and sends it again if its answer was lost. Calls that have no result then are sent alone, because one of them may be the reason. So a
   * batch may take half of the time that is left. @param {Call[]} group
   */
  async _together(group) {
    let rest = group
    for (let sharing = 0; sharing < Math.min(this.options.resends + 1, 2); sharing++) {
      const base = this.#current, plain = this.#plain[base]
      if (rest.length < 2 || plain && until(plain) > 0) break
      await rest[0].pause()
      const bound = Math.min(this.options.timeout, ...rest.map((c) => c.limit ? until(c.limit) : Infinity)) / 2
      if (bound <= 0) break
      for (const c of rest) c.sendings++
      const sent = now()
      let status = 0, busy = /** @type {Call[]} */ ([])
      try {
        const reply = await this._exchange(`${this.bases[base]}/v1/batch`, `{"operations":[${rest.map((c) => c.operation)}]}`, bound)
        const answer = decode(reply)
        status = reply.status
        if (isGood(reply)) busy = settleAll(rest, answer.results, sent)
        else if (this.#refused(base, status, answer, rest)) break
        else for (const c of rest) c.settle(status, false, ofLease.some((k) => k === kindOf(answer)) ? {} : answer, sent)
      } catch (e) {
        for (const c of rest) c.lose(e)
      }
      for (const c of rest) if (c.result) c.done()
      rest = rest.filter((c) => !c.result && !busy.includes(c))
      if (rest.length || elsewhere.includes(status)) this.#leave(base)
    }
    await each(group.filter((c) => !c.result), (c) => this._alone(c))
  }

  /** Reports whether a server does not take the batch, so that its calls are sent alone. @param {number} base @param {number} status @param {Record<string, any>} answer @param {Call[]} calls */
  #refused(base, status, answer, calls) {
    const kind = kindOf(answer)
    if (status === 401 || (kind ? kind !== Invalid && kind !== Denied : status >= 500)) return false
    if (status !== 400 && status !== 422) this.#plain[base] = after(now(), plainFor) // they are about this batch
    for (const c of calls) kind ? c.sendings-- : c.lose(new Error(`${status} ${answer.title}`))
    return true
  }

  /** Goes on with the next server. @param {number} base */
  #leave(base) { if (this.#current === base) this.#current = (base + 1) % this.bases.length }

  /** Sends a request once. @param {string} url @param {string | undefined} body @param {number} timeout */
  async _exchange(url, body, timeout) {
    const id = randomUUID(), abort = new AbortController()
    const timer = setTimeout(() => abort.abort(new Error(`no answer in ${timeout} ms`)), timeout)
    try {
      const headers = { ...this.headers, 'pglatch-request-id': id }, signal = abort.signal
      const response = await fetch(url, { method: body ? 'POST' : 'GET', body, headers, redirect: 'manual', signal })
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
const parse = (text) => JSON.parse(text.replace(/"(fencing_token|fence)"\s*:\s*(\d+)/g, '"$1":"bigint:$2"'), (k, v) => /^fenc(e|ing_token)$/.test(k) && /^bigint:\d+$/.test(v) ? BigInt(v.slice(7)) : v)

/** @typedef {{ answer: Record<string, any>, sent: Moment }} Done the answer, and the moment before its sending */
/** @typedef {{ status: number, media: string, text: string }} Reply */

/** One request, however often it is sent. */
class Call {
  sendings = 0
  /** No sending so far can have been carried out. */ known = true
  /** @type {unknown} */ error
  /** @type {Done | PglatchError | undefined} */ result
  /** Called with the result, before those of other calls of the batch are there. */ done = () => { }

  /** @param {string} verb @param {string} name @param {Record<string, any>} [body] @param {number} [wait] @param {Moment} [limit] */
  constructor(verb, name, body, wait = 0, limit = undefined) {
    this.verb = verb
    this.name = name
    this.body = body
    this.end = after(now(), wait)
    this.limit = limit
    this.share = body?.slots !== undefined || body?.mode !== undefined
    this.data = body && format(body)
    this.operation = `{"${verb}":{"lock":${JSON.stringify(name)},${this.data?.slice(1)}}` // in a batch
    this.path = ''
    try {
      if (name === '.' || name === '..') throw new URIError('fetch would leave it out of the path')
      this.path = `/v1/locks/${encodeURIComponent(name)}${verb && '/' + verb}`
    } catch {
      this.result = new Invalid({ detail: `a lock cannot be called ${JSON.stringify(name)}` })
    }
  }

  /** Waits before a sending that is not the first. */
  async pause() { if (this.sendings) await sleep(jitter(25 * 2 ** this.sendings)) }

  /** Takes the result from an answer, if it says what happened. @param {number} status @param {boolean} good @param {Record<string, any>} answer @param {Moment} sent */
  settle(status, good, answer, sent) {
    try {
      const kind = good ? undefined : kindOf(answer)
      if (good) this.check(answer)
      if (good) this.result = { answer, sent }
      else if (kind && (this.known || ofLease.includes(kind))) this.result = new kind({ ...answer, status })
      else this.lose(new Error(`${status} ${answer.title}`))
    } catch (e) {
      this.lose(e)
    }
  }

  /** Notes a sending without an answer that says what happened. @param {unknown} error */
  lose(error) {
    this.error = error
    this.known &&= this.verb === '' || this.verb === 'adopt' || notSent(error) // the former only read
  }

  /** Throws for the answer to another request: something between client and server mixes them up. @param {Record<string, any>} answer */
  check(answer) {
    const body = this.body, slot = answer.slot ?? 0, lock = this.share ? `${this.name}::slot::${String(slot).padStart(4, '0')}` : this.name
    const claim = ['owner_id', 'lease_id', 'fencing_token'].filter((key) => body && key in body)
    if (answer.lock !== lock || claim.some((key) => answer[key] !== body?.[key]) || body && (!answer.lease_id || typeof answer.fencing_token !== 'bigint')
      || this.share && (answer.share_of !== this.name || (slot === 0) !== (body?.mode === 'exclusive') || typeof answer.fence !== 'bigint')) {
      throw new Error('the answer is of another request')
    }
  }

  /** The error of a call without a result. @param {string[]} servers */
  unanswered(servers) {
    const request = `${this.verb || 'get'} ${this.name}`, e = /** @type {any} */ (this.error)
    if (!this.known) return new OutcomeUnknown(`${request}: outcome unknown: ${e}`, { cause: e })
    return new Unavailable(`${request}: no lock server answers at ${servers.join(', ')}: ${e?.cause?.code ?? e ?? 'its time is over'}; nothing was done${notSent(e) ? '; start one: pglatch serve locks' : ''}`)
  }
}

/** @param {Call} call @returns {Done} */
function doneOf(call) {
  if (call.result instanceof PglatchError) throw call.result
  return /** @type {Done} */ (call.result)
}

/** @param {Reply} r */
const isGood = (r) => r.status === 200 && r.media === 'application/json'
/** @param {Reply} r */
const decode = (r) => /json$/.test(r.media) ? parse(r.text) : { title: 'without an answer' }

/** Divides calls into batches. A call for a share is alone: it can wait behind others, and a batch does not wait. @param {Iterable<Call>} calls */
function groups(calls) {
  const all = /** @type {Call[][]} */ ([]), alone = /** @type {Call[][]} */ ([])
  let size = Infinity
  for (const c of calls) {
    const more = Buffer.byteLength(c.operation) + 1
    if (c.share || more + 20 > maxBatchBody) {
      alone.push([c])
      continue
    }
    if (size + more > maxBatchBody || all[all.length - 1].length === maxBatch) {
      all.push([])
      size = 20
    }
    all[all.length - 1].push(c)
    size += more
  }
  return [...all, ...alone]
}

/**
 * Takes the results of a batch. Returns the calls to send alone: the store was busy, or others wait for the lock.
 * @param {Call[]} calls @param {any} results @param {Moment} sent
 */
function settleAll(calls, results, sent) {
  if (!Array.isArray(results) || results.length !== calls.length) throw new Error('the answer is of another request')
  return calls.filter((c, i) => {
    const { status = 0, lease, released, problem } = results[i] ?? {}
    c.settle(status, status === 200, status !== 200 ? problem : c.verb === 'release' ? released : lease, sent)
    if (!(c.result instanceof Busy) || status !== 503) return false
    c.result = undefined // nothing was done
    c.sendings--
    return true
  })
}

/** Calls a function with each item, with a few at a time. @template T @param {T[]} items @param {(item: T) => Promise<void>} work */
async function each(items, work) {
  const rest = items.values()
  await Promise.all(items.slice(0, 8).map(async () => { for (const item of rest) await work(item) }))
}

/** @param {Iterable<Lease>} leases */
function leasesOf(leases) {
  const all = [...leases]
  if (!all.every((l) => l instanceof Lease)) throw new TypeError('leases: give only leases; results can be errors')
  return all
}

/** A lease that this process acquired. Give `token` to what the lease protects, which refuses a token below the greatest it has seen. */
export class Lease {
  #client; #until; #ended = false; #abort = new AbortController()
  /** @type {(NodeJS.Timeout | undefined)[]} of the heartbeat: the next renewal, the deadline */ #timers = []
  /** Goes on after a renewal of the heartbeat. @param {Done | PglatchError} result */ #beat = (result) => { }
  /** The result of release. @type {Promise<void> | undefined} */ released

  /** @param {Client} client @param {Record<string, any>} answer @param {number} ttl @param {Moment} deadline */
  constructor(client, answer, ttl, deadline) {
    this.#client = client
    this.#until = deadline
    /** @type {string} */ this.name = answer.lock
    /** @type {bigint} */ this.token = answer.fencing_token
    /** @type {string} */ this.owner = answer.owner_id
    /** @type {string} */ this.id = answer.lease_id
    /** The lock of which this is a share. @type {string | undefined} */ this.shareOf = answer.share_of
    /** Of a share; 0 = the whole lock, or no share. @type {number} */ this.slot = answer.slot ?? 0
    /** Rises over all shares of the lock; adopt does not return it. @type {bigint | undefined} */ this.fence = answer.fence
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

  /** Renews every interval (a third of the TTL) until the lease is released or lost: then `signal` is aborted, in time before the server can give it to another. Leases of a client that are due at about the same time share a request. @param {number} [interval] */
  heartbeat(interval = this.ttl / 3) {
    let failures = 0, first = this.remaining() / 3 // an adopted lease can be near its end
    const next = () => {
      const regular = Math.min(interval * (0.9 + Math.random() / 5), first)
      first = Infinity
      const pause = Math.min(failures ? Math.min(regular, jitter(interval / 8 * 2 ** Math.min(failures - 1, 3))) : regular, this.remaining())
      if (!failures) this.#client._due.set(this, { due: after(now(), pause), early: interval / 4 }) // after a failure it is renewed alone
      this.#timers[0] = setTimeout(() => { if (this.remaining() > 0) this.#client._beat(this) }, pause).unref()
    }
    this.#beat = (result) => {
      if (result instanceof Stale || result instanceof Expired || result instanceof NotFound) return void this.#lose(result)
      failures = result instanceof PglatchError ? failures + 1 : 0
      if (!(result instanceof PglatchError)) this._renewed(this.#client._deadline(result.answer, result.sent))
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

  /** @param {Promise<void>} released */
  _release(released) {
    this.released = released
    this.#end(new PglatchError(`lease on ${this.name} was released`))
  }
  /** The call of a heartbeat, for which no timer waits any more. */
  _renewal() {
    clearTimeout(this.#timers[0])
    const call = new Call('renew', this.name, { ...this.claim, ttl_ms: this.ttl }, 0, this.#until)
    call.done = () => this.#beat(/** @type {Done | PglatchError} */ (call.result))
    return call
  }
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
    this.#client._due.delete(this)
    this.#abort.abort(reason)
  }
}
