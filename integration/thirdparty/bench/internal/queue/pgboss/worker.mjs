// A worker of pg-boss, for the bench: each job is one row in the table handled, in the transaction that completes the job.
//
//   node worker.mjs URL WORKERS work     by boss.work
//   node worker.mjs URL WORKERS loop     by a loop over boss.fetch
//
// It prints the statement that sends a job. Then it reads "serve", and prints each job when its handler begins (b) and after
// its commit (e), until it reads "stop".
import { createInterface } from 'node:readline'
import pg from 'pg'
import { PgBoss } from 'pg-boss'

const [connectionString, count, way] = process.argv.slice(2)
const workers = Number(count)
const queue = 'bench'
const pool = new pg.Pool({ connectionString, max: workers })
const boss = new PgBoss({ connectionString, max: 10 + workers, queueCacheIntervalSeconds: 1, monitorIntervalSeconds: 1 })
boss.on('error', failed)
pool.on('error', failed)

function failed(err) {
  console.error(err)
  process.exit(1)
}

const say = (line) => process.stdout.write(line + '\n')

await boss.start()
await boss.createQueue(queue, { policy: 'key_strict_fifo' })
const db = {
  executeSql: async (text) => {
    say(JSON.stringify({ send: text }))
    return { rows: [{ id: '' }] }
  }
}
await boss.send(queue, {}, { singletonKey: '1', db })

// work has as many workers, all of which look as often as pg-boss lets them: twice a second, and at once while it knows of more
// jobs.
function work() {
  return boss.work(
    queue,
    { localConcurrency: workers, batchSize: 1, transactional: true, pollingIntervalSeconds: 0.5, burstWhenReadyExceeds: 1 },
    async ([job], tx) => {
      const m = job.data
      say(`b ${m.Entity} ${m.N} ${m.Sent}`)
      await tx.executeSql('INSERT INTO handled (entity, n) VALUES ($1, $2)', [m.Entity, m.N])
      say(`e ${m.Entity} ${m.N} ${m.Sent}`) // the commit comes a little later
    }
  )
}

// loop takes as many jobs at one time as there are free workers, and looks again as soon as one is free.
let serving = true
let running = 0
let wake = () => {}

async function loop() {
  while (serving) {
    const free = workers - running
    const jobs = free > 0 ? await boss.fetch(queue, { batchSize: free }) : []
    for (const job of jobs) {
      running++
      handle(job).catch(failed).finally(() => {
        running--
        wake()
      })
    }
    if (jobs.length === 0) await pause(free > 0 ? 5 : 1000)
  }
  while (running > 0) await pause(1000)
}

// pause ends when a handler does.
function pause(ms) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms)
    wake = () => {
      clearTimeout(timer)
      resolve()
    }
  })
}

async function handle(job) {
  const m = job.data
  say(`b ${m.Entity} ${m.N} ${m.Sent}`)
  const client = await pool.connect()
  try {
    await client.query('BEGIN')
    await client.query('INSERT INTO handled (entity, n) VALUES ($1, $2)', [m.Entity, m.N])
    const done = await boss.complete(queue, job, null, { db: { executeSql: (text, values) => client.query(text, values) } })
    if (done.affected !== 1) throw new Error(`the claim of ${job.id} is lost`)
    await client.query('COMMIT')
  } finally {
    client.release()
  }
  say(`e ${m.Entity} ${m.N} ${m.Sent}`)
}

let served
for await (const line of createInterface({ input: process.stdin })) {
  if (line === 'serve') served = (way === 'work' ? work() : loop()).catch(failed)
  if (line === 'stop') break
}
serving = false
wake()
await served
await boss.stop({ timeout: 20_000 })
process.exit(0)
