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

  _call(...args) { return this.local.run(this.local.getStore() ?? { sendings: 0 }, () => super._call(...args)) }

  _deadline(answer, sent) {
    const d = super._deadline(answer, sent)
    return config.control === 'no deadline' ? { run: d.run + 3600e3, up: d.up + 3600e3 } : d
  }

  _exchange(url, body, timeout) {
    const op = this.local.getStore()
    op.sendings++
    if (config.control === 'another key' && op.sendings > 1 && body.idempotency_key) body = { ...body, idempotency_key: body.idempotency_key + op.sendings }
    return super._exchange(url, body, timeout)
  }
}

/** Writes each call down before it is sent and when it is answered. */
class Recorded extends Spoilt {
  calls = 0

  async _call(verb, name, body, wait, limit) {
    const op = {
      call: ++this.calls, op: verb, lock: name, owner_id: body.owner_id, lease_id: body.lease_id ?? '', fencing_token: body.fencing_token ?? 0,
      idempotency_key: verb === 'acquire' ? body.idempotency_key : '', began_ns: nanoseconds(), sendings: 0,
    }
    emit(op)
    try {
      const { answer, sent } = await this.local.run(op, () => super._call(verb, name, body, wait, limit))
      for (const key of ['lease_id', 'fencing_token', 'acquired_at', 'expires_at', 'ttl_remaining_ms']) if (key in answer) op[key] = answer[key]
      op.outcome = 'ok'
      if (verb !== 'release') op.trusted_until_ns = nanoseconds() + Math.floor((this._deadline(answer, sent).run - performance.now()) * 1e6)
      return { answer, sent }
    } catch (e) {
      if (e instanceof pglatch.Problem) Object.assign(op, { outcome: String(e.problem.type).split('/').pop(), held_by: e.owner })
      throw e
    } finally {
      emit({ ...op, ended_ns: nanoseconds() })
    }
  }
}

const client = (kind) => new kind(config.bases, { token: config.token, timeout: config.timeout, ttl: config.ttl, margin: config.margin || undefined })

async function turn(c, owner) {
  const name = `job-${Math.floor(nanoseconds() / 5e8)}-${Math.floor(Math.random() * 2)}`, ttl = 300 + Math.floor(Math.random() * 300)
  const lease = await c.acquire(name, { wait: Math.random() < 0.5 ? 0 : 1000, ttl, owner })
  switch (Math.floor(Math.random() * 4)) {
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

async function obey() {
  const c = client(Spoilt), leases = {}
  for await (const line of createInterface({ input: process.stdin })) {
    const k = JSON.parse(line)
    let lease = leases[k.as]
    try {
      switch (k.do) {
        case 'acquire': lease = leases[k.as] = await c.acquire(k.name, { wait: k.wait, owner: k.as }); break
        case 'renew': await c.renew(lease); break
        case 'heartbeat': lease.heartbeat(k.wait); break
        case 'lost': while (!lease.signal.aborted) await sleep(5); break
        case 'check': lease.check(); break
        case 'release': await lease.release(); break
      }
      emit({ token: String(lease.token), id: lease.claim.lease_id, remaining: Math.floor(lease.remaining()) })
    } catch (e) {
      emit({ error: e.constructor.name, owner: e.owner ?? '' })
    }
  }
}

if (config.load) {
  const shared = client(Recorded)
  for (let i = 0; i < 3; i++) load(shared, `${config.load}-${i}`)
  process.stdin.on('end', () => process.exit(0)).resume()
} else {
  await obey().catch((e) => emit({ error: e.constructor.name }))
}
