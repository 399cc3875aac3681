//go:build integration

package history

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/internal/test/trace"
	"github.com/pglatch/pglatch/namespace"
)

var (
	agents = namespace.Must(1, "agent")
	pools  = namespace.Must(2, "pool") // semaphores
)

const (
	poolSlots = 3
	keys      = 8
	workers   = 64 // of each Locker
	lockers   = 2  // of each process
	holdFor   = 3 * time.Millisecond
)

// A job is what a process is told to do, through its environment.
type job struct {
	DSN     string `json:"dsn"`
	Process int64  `json:"process"`
	Close   bool   `json:"close"` // Lockers are closed and opened meanwhile
	NoLock  bool   `json:"no_lock"`
	Share   bool   `json:"share"` // readers and holders of slots, too
	// LocksPerConn is that of the process's Lockers.
	LocksPerConn int `json:"locks_per_conn"`
	// HandOver lets locks pass on inside a process. A session that is killed is then
	// found out up to a few milliseconds late, by another worker than the one whose
	// hold it cut short, so that the history is not exact.
	HandOver bool `json:"hand_over"`
	// Slack is the detection time for which a killed lock may still be passed on:
	// the end of each hold may have been so much earlier than its worker saw.
	Slack time.Duration `json:"slack"`
	// Run is the directory for the events of the process's Lockers; empty = none are written.
	Run string `json:"run"`
}

// A report is what a process tells when it is done.
type report struct {
	Holds      []judge.Hold
	Spans      []span
	InTx       int64  `json:"in_tx"`  // increments of counter_tx that were committed
	Client     int64  `json:"client"` // read-modify-writes of counter_client that were written
	Lost       int64  `json:"lost"`
	Unexpected string `json:"unexpected"`
	// Failures are how often the expected errors came.
	Failures map[string]int64 `json:"failures"`
}

// A fighter is one process of the fight.
type fighter struct {
	job     job
	work    *pgxpool.Pool
	lockers [lockers]atomic.Pointer[advisory.Locker]
	traces  [lockers]*trace.Writer

	stall atomic.Pointer[stall] // the last one

	mu     sync.Mutex
	report report
}

// A stall is a time, as of holds, in which the process, or most of it, did not run.
type stall struct{ began, ended int64 }

// watch notes stalls until ctx ends.
func (f *fighter) watch(ctx context.Context) {
	const every = 10 * time.Millisecond
	for last := monotonic(); pause(ctx, every); {
		now := monotonic()
		if now-last > int64(5*every) {
			f.stall.Store(&stall{last, now})
		}
		last = now
	}
}

// detectedFrom is the earliest time at which a lock may have been lost that nobody had found lost until now: a
// process that stalls finds nothing out meanwhile.
func (f *fighter) detectedFrom(now int64) int64 {
	from := now - int64(f.job.Slack)
	if s := f.stall.Load(); s != nil && f.job.Slack > 0 && from < s.ended {
		from = min(from, s.began-int64(f.job.Slack))
	}
	return from
}

// heldAll reports whether the process has held each key.
func (f *fighter) heldAll() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	held := make(map[string]bool)
	for _, h := range exclusive(f.report.Holds) {
		held[h.Key] = true
	}
	return len(held) == keys
}

// fight fights until in ends, and longer if a slow machine has not let it hold each key by then.
func fight(j job, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	config, err := pgxpool.ParseConfig(j.DSN)
	if err != nil {
		return err
	}
	config.MaxConns = 20
	work, err := pgxpool.NewWithConfig(context.Background(), config)
	if err != nil {
		return err
	}
	defer work.Close()
	f := &fighter{job: j, work: work, report: report{Failures: make(map[string]int64)}}
	for i := range f.lockers {
		if f.traces[i], err = trace.Open(j.Run, f.name(i)); err != nil {
			return err
		}
		if err := f.open(i); err != nil {
			return err
		}
	}
	go func() {
		defer cancel()
		_, _ = io.Copy(io.Discard, in)
		for limit := time.Now().Add(patience); !f.heldAll() && time.Now().Before(limit); {
			<-time.After(10 * time.Millisecond)
		}
	}()
	var wg sync.WaitGroup
	wg.Go(func() { f.watch(ctx) })
	for i := range f.lockers {
		for w := range workers {
			wg.Go(func() { f.worker(ctx, i, w) })
		}
		if j.Close {
			wg.Go(func() { f.closer(ctx, i) })
		}
	}
	wg.Wait()
	for i := range f.lockers {
		f.lockers[i].Load().Close()
		f.traces[i].Emit(trace.Event{Kind: trace.Stopped})
		if err := f.traces[i].Close(); err != nil {
			return err
		}
	}
	return json.NewEncoder(out).Encode(f.report)
}

// name is the name of a Locker's sessions, and of its events.
func (f *fighter) name(i int) string { return fmt.Sprintf("fighter-%d-%d", f.job.Process, i) }

func (f *fighter) open(i int) error {
	config := advisory.Config{DSN: f.job.DSN, ApplicationName: f.name(i), LocksPerConn: f.job.LocksPerConn}
	if !f.job.HandOver {
		config.HandOverBudget = -1
	}
	l, err := advisory.Open(context.Background(), config)
	for errors.Is(err, advisory.ErrUnavailable) { // its first session was killed
		l, err = advisory.Open(context.Background(), config)
	}
	if err != nil {
		return err
	}
	f.lockers[i].Store(l)
	return nil
}

// closer closes a Locker under its users and puts a new one in its place.
func (f *fighter) closer(ctx context.Context, i int) {
	for pause(ctx, time.Second+rand.N(2*time.Second)) {
		asked := trace.Now()
		f.lockers[i].Load().Close()
		f.traces[i].Emit(trace.Event{Kind: trace.Fault, Who: f.name(i), Text: "closed", Asked: asked})
		if err := f.open(i); err != nil {
			f.unexpected(err)
			return
		}
	}
}

func (f *fighter) worker(ctx context.Context, i, w int) {
	for ctx.Err() == nil {
		key := rand.Int64N(keys)
		if rand.IntN(8) == 0 {
			f.inTx(ctx, i, w, key)
		} else {
			f.hold(ctx, i, w, key)
		}
	}
}

// A lock is what a caller asks for.
type lock struct {
	key   namespace.Key
	slots int // 0 = exclusive, trace.AnyNumber = as a reader, or those of a semaphore
}

// choose chooses a lock.
func (f *fighter) choose(key int64) lock {
	switch n := rand.IntN(3); {
	case f.job.Share && n == 0:
		return lock{agents.ID(key), trace.AnyNumber}
	case f.job.Share && n == 1:
		return lock{pools.ID(key), poolSlots}
	}
	return lock{agents.ID(key), 0}
}

// emitter returns what writes events of a caller.
func (f *fighter) emitter(i int, who string, of lock) (emit func(trace.Kind)) {
	return func(kind trace.Kind) {
		f.traces[i].Emit(trace.Event{Kind: kind, Key: of.key.String(), Who: who, Slots: of.slots})
	}
}

// hold takes a lock, does a read-modify-write under it if it is exclusive, and gives it back.
func (f *fighter) hold(ctx context.Context, i, w int, key int64) {
	of := f.choose(key)
	emit := f.emitter(i, strconv.Itoa(w), of)
	wait, cancel := context.WithCancel(ctx)
	defer cancel()
	if rand.IntN(10) == 0 {
		stop := time.AfterFunc(rand.N(20*time.Millisecond), cancel)
		defer stop.Stop()
	}
	call := monotonic()
	emit(trace.Ask)
	lock, err := f.acquire(wait, i, of)
	granted := monotonic()
	if err != nil {
		emit(trace.Refused)
		f.expect(err)
		pause(ctx, time.Millisecond)
		return
	}
	emit(trace.Acquired)
	told := learns(lock)
	if of.slots == 0 {
		_ = f.client(context.WithoutCancel(ctx), key)
	}
	<-time.After(holdFor)
	ending, ended := monotonic(), trace.Released
	emit(trace.Release)
	if lock != nil {
		ending = max(call, f.detectedFrom(ending))
		if err := lock.Release(); err != nil {
			ended = trace.Lost
			ending = call // it may have ended as soon as the server had granted it
			f.lost()
			f.lostSpan(key, granted, told())
			f.expect(err)
		}
	}
	emit(ended)
	hold := judge.Hold{
		Key: of.key.String(), Who: fmt.Sprintf("%d-%d", f.job.Process, i), Exclusive: of.slots == 0,
		Begin: judge.Moment{Earliest: call, Latest: granted}, End: judge.Moment{Earliest: ending, Latest: monotonic()},
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report.Holds = append(f.report.Holds, hold)
}

func (f *fighter) acquire(ctx context.Context, i int, of lock) (*advisory.Lock, error) {
	if f.job.NoLock {
		return nil, nil
	}
	l := f.lockers[i].Load().With(advisory.Options{Wait: 5*time.Millisecond + rand.N(time.Second), Shared: of.slots == trace.AnyNumber})
	switch {
	case of.slots == poolSlots:
		return l.AcquireSlot(ctx, of.key, of.slots)
	case rand.IntN(5) == 0:
		return l.TryAcquire(ctx, of.key)
	}
	return l.Acquire(ctx, of.key)
}

// client increments a counter with a read and a write, as an application does.
func (f *fighter) client(ctx context.Context, key int64) error {
	var n int64
	if err := f.work.QueryRow(ctx, "SELECT n FROM counter_client WHERE key = $1", key).Scan(&n); err != nil {
		return err
	}
	if _, err := f.work.Exec(ctx, "UPDATE counter_client SET n = $2 WHERE key = $1", key, n+1); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report.Client++
	return nil
}

// inTx increments a counter with a read and a write in a transaction that has
// the lock.
func (f *fighter) inTx(ctx context.Context, i, w int, key int64) {
	emit := f.emitter(i, "tx "+strconv.Itoa(w), lock{agents.ID(key), 0})
	err := func() error {
		tx, err := f.work.Begin(ctx)
		if err != nil {
			return err
		}
		rollback := func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }
		emit(trace.Ask)
		if !f.job.NoLock {
			options := advisory.TxOptions{Wait: rand.N(time.Second) + 1}
			if err := advisory.LockTx(ctx, tx, options, agents.ID(key)); err != nil {
				emit(trace.Refused)
				rollback()
				return err
			}
		}
		emit(trace.Acquired)
		defer func() {
			rollback()
			emit(trace.Released)
		}()
		ctx := context.WithoutCancel(ctx) // a canceled statement would end the session, and with it the lock, before Release
		var n int64
		err = tx.QueryRow(ctx, "SELECT n FROM counter_tx WHERE key = $1", key).Scan(&n)
		if err == nil {
			_, err = tx.Exec(ctx, "UPDATE counter_tx SET n = $2 WHERE key = $1", key, n+1)
		}
		emit(trace.Release)
		if err != nil {
			return err
		}
		return tx.Commit(ctx)
	}()
	if err != nil {
		f.expect(err)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report.InTx++
}

// expect notes errors that no fault of the fight explains.
func (f *fighter) expect(err error) {
	for _, expected := range []error{
		advisory.ErrHeld, advisory.ErrTimeout, advisory.ErrLost, advisory.ErrClosed, advisory.ErrUnavailable, advisory.ErrPoolExhausted,
		context.Canceled, context.DeadlineExceeded,
	} {
		if errors.Is(err, expected) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.report.Failures[expected.Error()]++
			return
		}
	}
	f.unexpected(err)
}

func (f *fighter) unexpected(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report.Unexpected = err.Error()
}

func (f *fighter) lost() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.report.Lost++
}

// pause waits and reports whether ctx still runs.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
