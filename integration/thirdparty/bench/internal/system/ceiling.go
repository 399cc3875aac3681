package system

import (
	"context"
	"encoding/binary"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
)

// A ceiling does the least work that takes and releases locks on one connection: batches, and
// a lock that passes on inside the process. It has no watch, no ping, no deadline and no
// compared pid. Its waits end only with the lock, and it joins no queue. The overhead of a
// library is measured against it.
type ceiling struct {
	env  Env
	conn *pgconn.PgConn

	mu      sync.Mutex
	driven  bool // one worker sends batches
	pending []*ask
	asked   atomic.Int32      // how many wait in pending
	keys    map[uint32][]*ask // held keys, with their waiters
	asks    []ask             // one for each worker

	batch  []*ask // of the worker that sends
	arrays [2][]byte
}

// An ask is the request that a worker waits for.
type ask struct {
	key    uint32
	unlock bool
	done   chan bool // false = the worker sends the next batch
	err    error
}

const (
	ceilingBatch = `SELECT count(*), array_agg(k) FILTER (WHERE NOT ok) FROM (
	SELECT k, pg_advisory_unlock(1, k) AS ok FROM (SELECT unnest($1::int4[]) AS k) AS unlocks
	UNION ALL SELECT k, pg_try_advisory_lock(1, k) FROM (SELECT unnest($2::int4[]) AS k) AS tries) AS called`
	ceilingTry    = "SELECT pg_try_advisory_lock(1, $1)"
	ceilingUnlock = "SELECT pg_advisory_unlock(1, $1)"
)

func openCeiling(ctx context.Context, env Env) (Client, error) {
	config, err := pgconn.ParseConfig(env.Addresses[Postgres])
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = env.Tag
	config.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	for name, sql := range map[string]string{"batch": ceilingBatch, "try": ceilingTry, "unlock": ceilingUnlock} {
		if _, err := conn.Prepare(ctx, name, sql, nil); err != nil {
			return nil, errors.Join(err, conn.Close(ctx))
		}
	}
	c := &ceiling{env: env, conn: conn, keys: map[uint32][]*ask{}, asks: make([]ask, env.Workers)}
	for i := range c.asks {
		c.asks[i].done = make(chan bool, 1)
	}
	return c, nil
}

func (c *ceiling) Cycle(_ context.Context, worker int, key uint32, held func()) error {
	a := &c.asks[worker]
	a.key = key
	c.mu.Lock()
	waiters, taken := c.keys[key]
	if taken {
		c.keys[key] = append(waiters, a)
		c.mu.Unlock()
		<-a.done
	} else {
		c.keys[key] = nil
		if err := c.ask(a, false); err != nil {
			return err
		}
	}
	held()
	c.mu.Lock()
	if waiters = c.keys[key]; len(waiters) > 0 {
		c.keys[key] = waiters[1:]
		waiters[0].done <- true
		c.mu.Unlock()
		return nil
	}
	delete(c.keys, key)
	return c.ask(a, true)
}

// ask gets a request to the server. The caller holds mu; ask unlocks it.
func (c *ceiling) ask(a *ask, unlock bool) error {
	a.unlock, a.err = unlock, nil
	c.pending = append(c.pending, a)
	c.asked.Add(1)
	if c.driven {
		c.mu.Unlock()
		if <-a.done {
			return a.err
		}
		c.mu.Lock()
	}
	c.driven = true
	if len(c.batch) > 1 { // yields, so that the workers of the last batch can join
		c.mu.Unlock()
		most, crowd := int32(0), int32(len(c.batch))
		for yields := 0; yields < 30 && most < crowd && most < 64; yields++ {
			if now := c.asked.Load(); now > most {
				most, yields = now, 0
			}
			runtime.Gosched()
		}
		c.mu.Lock()
	}
	c.batch, c.pending = c.pending, c.batch[:0]
	c.asked.Store(0)
	c.mu.Unlock()
	err := c.send()
	c.mu.Lock()
	for _, b := range c.batch {
		b.err = err
		if b != a {
			b.done <- true
		}
	}
	if c.driven = len(c.pending) > 0; c.driven {
		c.pending[0].done <- false
	}
	c.mu.Unlock()
	return err
}

var errRefused = errors.New("somebody else has the lock")

// send executes the batch.
func (c *ceiling) send() error {
	binaryFormat := []int16{1}
	if len(c.batch) == 1 {
		name := "try"
		if c.batch[0].unlock {
			name = "unlock"
		}
		r := c.conn.ExecPrepared(context.Background(), name, [][]byte{binary.BigEndian.AppendUint32(c.arrays[0][:0], c.batch[0].key)}, binaryFormat, binaryFormat).Read()
		if r.Err == nil && r.Rows[0][0][0] != 1 {
			return errRefused
		}
		return r.Err
	}
	for i := range c.arrays {
		b := c.arrays[i][:0]
		n := 0
		for _, a := range c.batch {
			if a.unlock == (i == 0) {
				n++
			}
		}
		const int4 = 23 // the type's number, from pg_type.dat
		for _, v := range []uint32{1, 0, int4, uint32(n), 1} {
			b = binary.BigEndian.AppendUint32(b, v)
		}
		for _, a := range c.batch {
			if a.unlock == (i == 0) {
				b = binary.BigEndian.AppendUint64(b, 4<<32|uint64(a.key))
			}
		}
		c.arrays[i] = b
	}
	r := c.conn.ExecPrepared(context.Background(), "batch", c.arrays[:], binaryFormat, binaryFormat).Read()
	if r.Err == nil && (int(binary.BigEndian.Uint64(r.Rows[0][0])) != len(c.batch) || r.Rows[0][1] != nil) {
		return errRefused
	}
	return r.Err
}

func (c *ceiling) Footprint(ctx context.Context) (Footprint, error) { return c.env.sessions(ctx) }

func (c *ceiling) Close() error { return c.conn.Close(context.Background()) }
