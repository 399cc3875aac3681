// Does with pglatch.mjs what a test says, line by line, or works on locks and writes down each call.
import { createInterface } from 'node:readline'
import { performance } from 'node:perf_hooks'
import { AsyncLocalStorage } from 'node:async_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { writeSync } from 'node:fs'
import * as pglatch from '../typescript/pglatch.mjs'

const config = JSON.parse(process.argv[2])
const nanoseconds = () => Number(process.hrtime.bigint())

function emit(value) {
  const line = Buffer.from(JSON.stringify(value, (_, v) => typeof v === 'bigint' ? Number(v) : v) + '\n')
  for (let at = 0; at < line.length;) {
    try { at += writeSync(1, line, at) } catch (e) { if (e.code !== 'EAGAIN') throw e }
  }
}

/** Does wrong what the test says. */
class Spoilt extends pglatch.Client {
  local = new AsyncLocalStorage() // sendings of the call

  _alone(call) { return this.local.run({ sendings: call.sendings }, () => super._alone(call)) }
  _together(group) { return this.local.run({ sendings: 0 }, () => super._together(group)) }

  _deadline(answer, sent) {
    const d = super._deadline(answer, sent)
    return config.control === 'no deadline' ? { run: d.run + 3600e3, up: d.up + 3600e3 } : d
  }

  _exchange(url, body, timeout) {
    const n = ++this.local.getStore().sendings
    if (config.control === 'another key' && n > 1) body = body.replace(/"idempotency_key":"/g, `"idempotency_key":"${n}-`)
    return super._exchange(url, body, timeout)
  }
}

/** Writes each call down before it is sent and when it is answered. */
class Recorded extends Spoilt {
  calls = 0

  _alone(call) { return this.record([call], () => super._alone(call)) }
  _together(group) { return this.record(group, () => super._together(group)) }

  async record(calls, send) {
    calls = calls.filter((c) => !c.op) // others are those of a batch
    for (const c of calls) {
      c.op = {
        call: ++this.calls, op: c.verb, lock: c.name, owner_id: c.body.owner_id, lease_id: c.body.lease_id ?? '', fencing_token: c.body.fencing_token ?? 0,
        idempotency_key: c.verb === 'acquire' ? c.body.idempotency_key : '', began_ns: nanoseconds(),
      }
      emit(c.op)
    }
    try {
      await send()
    } finally {
      for (const c of calls) this.answered(c, c.op, c.result)
    }
  }

  answered(call, op, result) {
    if (result instanceof pglatch.Problem) {
      Object.assign(op, { outcome: String(result.problem.type).split('/').pop(), held_by: result.owner })
    } else if (result && !(result instanceof Error)) {
      for (const key of ['lease_id', 'fencing_token', 'acquired_at', 'expires_at', 'ttl_remaining_ms']) if (key in result.answer) op[key] = result.answer[key]
      op.outcome = 'ok'
      if (call.verb !== 'release') op.trusted_until_ns = nanoseconds() + Math.floor((this._deadline(result.answer, result.sent).run - performance.now()) * 1e6)
    }
    emit({ ...op, ended_ns: nanoseconds(), sendings: call.sendings })
  }
}

const client = (kind) => new kind(config.bases, { token: config.token, timeout: config.timeout, ttl: config.ttl, margin: config.margin || undefined })

const chance = (n) => Math.floor(Math.random() * n)

async function turn(c, owner) {
  const names = [0, 1].map((i) => `job-${Math.floor(nanoseconds() / 5e8)}-${i}`), ttl = 300 + chance(300)
  if (chance(2)) return together(c, owner, names, ttl)
  const lease = await c.acquire(names[chance(2)], { wait: chance(2) * 1000, ttl, owner })
  switch (chance(4)) {
    case 0:
      lease.heartbeat()
      await sleep(1.5 * ttl, undefined, { signal: lease.signal }).catch(() => { })
      lease.check()
      break
    case 1:
      await c.renew(lease)
      break
    case 2:
      return // leaves it to expire
  }
  await lease.release()
  await lease.release()
}

async function together(c, owner, names, ttl) {
  const leases = (await c.acquireAll(names, { ttl, owner })).filter((r) => r instanceof pglatch.Lease)
  if (chance(2)) await c.renewAll(leases)
  if (chance(4)) await c.releaseAll(leases)
  if (!leases.length) await sleep(10)
}

async function load(c, owner) {
  for (; ;) {
    try {
      await turn(c, owner)
    } catch (e) {
      if (!(e instanceof pglatch.PglatchError)) throw e
      await sleep(10)
    }
  }
}

/** Has shares of a lock again and again, and writes down what it may rely on. */
async function share(c, owner) {
  for (; ;) {
    const terms = config.share.slots ? { slots: config.share.slots } : { mode: config.share.mode || ['shared', 'shared', 'exclusive'][chance(3)] }
    const asked = nanoseconds()
    try {
      const lease = await c.acquire('shared', { wait: 10_000, ttl: 400, owner, ...terms })
      const hold = {
        owner: lease.owner, id: lease.id, slot: lease.slot, fence: lease.fence, asked_ns: asked, got_ns: nanoseconds(),
        end_ns: nanoseconds() + Math.floor(lease.remaining() * 1e6),
      }
      emit(hold)
      await sleep(chance(20))
      if (!chance(8)) continue
      emit({ ...hold, end_ns: Math.min(hold.end_ns, nanoseconds()) })
      await lease.release()
    } catch (e) {
      if (!(e instanceof pglatch.PglatchError)) throw e
      await sleep(10)
    }
  }
}

const told = (r) => r instanceof pglatch.PglatchError ? { error: r.constructor.name, owner: r.owner ?? '' } : {
  token: String(r.token), id: r.id, remaining: Math.floor(r.remaining()), name: r.name, owner: r.owner, share_of: r.shareOf ?? '', slot: r.slot, fence: String(r.fence ?? 0),
}

async function obey() {
  const c = client(Spoilt), leases = {}
  for await (const line of createInterface({ input: process.stdin })) {
    const k = JSON.parse(line), many = (k.names ?? []).filter((name) => name in leases).map((name) => leases[name])
    let lease = leases[k.as], results
    try {
      switch (k.do) {
        case 'acquire': lease = leases[k.as] = await c.acquire(k.name, { wait: k.wait, owner: k.as, slots: k.slots, mode: k.mode }); break
        case 'adopt': lease = leases[k.as] = await c.adopt(k.name, k.owner, k.id ?? ''); break
        case 'renew': await c.renew(lease); break
        case 'heartbeat': lease.heartbeat(k.wait || undefined); break
        case 'lost': while (!lease.signal.aborted) await sleep(5); break
        case 'check': lease.check(); break
        case 'release': await lease.release(); break
        case 'acquire all':
          results = await c.acquireAll(k.names, { owner: k.as, slots: k.slots, mode: k.mode })
          results.forEach((r, i) => { if (r instanceof pglatch.Lease) leases[k.names[i]] = r })
          break
        case 'renew all': results = await c.renewAll(many); break
        case 'release all': results = await c.releaseAll(many); break
        case 'heartbeat all': many.forEach((l) => l.heartbeat(k.wait || undefined)); results = many; break
        case 'tell all': results = many; break
      }
      emit(results ? { results: results.map(told) } : told(lease))
    } catch (e) {
      emit(e instanceof pglatch.PglatchError ? told(e) : { error: e.constructor.name })
    }
  }
}

if (config.load) {
  const shared = client(config.share ? Spoilt : Recorded)
  for (let i = 0; i < 3; i++) (config.share ? share : load)(shared, `${config.load}-${i}`)
  process.stdin.on('end', () => process.exit(0)).resume()
} else {
  await obey().catch((e) => emit({ error: e.constructor.name }))
}
