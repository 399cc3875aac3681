package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/histogram"
	"github.com/pglatch/pglatch/internal/pause"
)

// A Load is what one measurement does.
type Load struct {
	Entities int
	Depth    int           // messages that wait before it begins; 0 = all are sent meanwhile
	Rate     float64       // messages a second that are sent; 0 = as many as are handled
	Duration time.Duration // after a fifth of it to warm up
	Workers  int

	// Beside is how many more messages wait for one further entity, and Snapshot holds a snapshot meanwhile.
	Beside   int
	Snapshot bool
}

// A Result is what was measured, and what was counted to see that the work was done.
type Result struct {
	Rate     float64 // messages a second
	Latency  histogram.Histogram
	Handled  int // rows in the table
	Twice    int // messages with more than one row
	Disorder int // rows of an entity behind a row with a greater number
	Overlaps int // handlers that began while another one of the entity ran
}

// senders is how many goroutines send. Each has entities of its own.
const senders = 16

// A run is one measurement.
type run struct {
	load    Load
	site    *Site
	queue   Queue
	flight  chan struct{} // one element for each message that was sent and not handled
	handled atomic.Int64
	closers []func()
	gate    sync.RWMutex // is locked while handlers are to wait

	mu       sync.Mutex
	latency  histogram.Histogram
	running  map[int64]int
	overlaps int
	timing   bool
}

// Measure runs a system in a database of its own on a server.
func Measure(ctx context.Context, admin string, s System, load Load) (Result, error) {
	r, err := open(ctx, admin, s, load)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", s.Name, err)
	}
	defer r.close()
	rate, err := r.measure(ctx, load.Duration)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", s.Name, err)
	}
	return r.result(ctx, rate)
}

// Pair measures a system under two loads on one server, in databases of their own. They work by turns, for a slice
// each, so that whatever else the machine does is the same for both. In between, handlers wait. It ends when both worked for
// their Duration, or one has no messages left. It returns a pair of rates for each slice.
func Pair(ctx context.Context, admin string, s System, loads [2]Load, slice time.Duration) (pairs [][2]float64, results [2]Result, err error) {
	var runs []*run
	var served []<-chan error
	serving, stop := context.WithCancel(ctx)
	end := sync.OnceValue(func() (err error) { // lets the waiting handlers end, too
		stop()
		for i, r := range runs {
			r.gate.Unlock()
			err = errors.Join(err, <-served[i])
		}
		return err
	})
	defer func() {
		if ended := end(); err == nil {
			err = ended
		}
		for _, r := range runs {
			r.close()
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", s.Name, err)
		}
	}()
	for _, load := range loads {
		r, err := open(ctx, admin, s, load)
		if err != nil {
			return nil, results, err
		}
		r.gate.Lock()
		runs, served = append(runs, r), append(served, r.serve(serving))
	}
	for worked := time.Duration(0); worked < max(loads[0].Duration, loads[1].Duration); worked += slice {
		var rates [2]float64
		for i, r := range runs {
			r.gate.Unlock()
			rates[i], err = r.count(ctx, slice, served[i])
			r.gate.Lock()
			if err != nil {
				return nil, results, err
			}
		}
		if runs[0].empty() || runs[1].empty() {
			break
		}
		pairs = append(pairs, rates)
	}
	if err := end(); err != nil {
		return nil, results, err
	}
	for i, r := range runs {
		if results[i], err = r.result(ctx, 0); err != nil {
			return nil, results, err
		}
	}
	return pairs, results, nil
}

// open makes the database, stores what waits, and takes the snapshot.
func open(ctx context.Context, admin string, s System, load Load) (_ *run, err error) {
	r := &run{load: load, flight: make(chan struct{}, 4*load.Workers), running: map[int64]int{}}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	site, remove, err := newSite(ctx, admin, load.Workers, fmt.Sprintf("pool_max_conns=%d", load.Workers+senders+10))
	if err != nil {
		return nil, err
	}
	r.site, r.closers = site, append(r.closers, remove)
	if _, err := site.Pool.Exec(ctx, "CREATE TABLE handled (seq bigserial PRIMARY KEY, entity bigint NOT NULL, n bigint NOT NULL)"); err != nil {
		return nil, err
	}
	if r.queue, err = s.Open(ctx, r.site); err != nil {
		return nil, err
	}
	r.closers = append(r.closers, r.queue.Close)
	if err := r.fill(ctx); err != nil || !load.Snapshot {
		return r, err
	}
	conn, err := pgx.Connect(ctx, site.DSN)
	if err != nil {
		return nil, err
	}
	r.closers = append(r.closers, func() { _ = conn.Close(context.WithoutCancel(ctx)) })
	_, err = conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM handled")
	return r, err
}

// close undoes what open did, the last first.
func (r *run) close() {
	for _, undo := range slices.Backward(r.closers) {
		undo()
	}
}

// empty reports whether all messages that waited were handled.
func (r *run) empty() bool { return r.load.Depth > 0 && int(r.handled.Load()) >= r.load.Depth }

// fill stores what waits, and has the server count it.
func (r *run) fill(ctx context.Context) error {
	if r.load.Depth > 0 {
		if err := r.queue.Fill(ctx, r.load.Entities, max(r.load.Depth/r.load.Entities, 1)); err != nil {
			return err
		}
	}
	if r.load.Beside > 0 { // for entity 0
		box, ok := r.queue.(*mailbox)
		if !ok {
			return errors.New("messages beside others are for turns")
		}
		if err := box.fill(ctx, 0, 0, r.load.Beside); err != nil {
			return err
		}
	}
	_, err := r.site.Pool.Exec(ctx, "VACUUM ANALYZE")
	return err
}

// measure returns how many messages a second were handled.
func (r *run) measure(ctx context.Context, d time.Duration) (rate float64, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := r.serve(ctx)
	var sending sync.WaitGroup
	if r.load.Depth == 0 {
		r.send(ctx, &sending)
	}
	rate, err = r.count(ctx, d, served)
	stop()
	sending.Wait()
	if err != nil {
		return 0, err
	}
	if err := <-served; err != nil && !errors.Is(err, context.Canceled) { // canceled: the run was shorter than its begin
		return 0, err
	}
	return rate, nil
}

// serve serves until ctx ends.
func (r *run) serve(ctx context.Context) <-chan error {
	served := make(chan error, 1)
	go func() {
		served <- r.queue.Serve(ctx, r.begin, r.end)
		close(served)
	}()
	return served
}

// count returns how many messages a second were handled, after the time to warm up.
func (r *run) count(ctx context.Context, d time.Duration, served <-chan error) (rate float64, err error) {
	if err := last(ctx, d/5, served); err != nil {
		return 0, err
	}
	r.mu.Lock()
	r.timing = true
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.timing = false
		r.mu.Unlock()
	}()
	before, began := r.handled.Load(), time.Now()
	err = last(ctx, d, served)
	return float64(r.handled.Load()-before) / time.Since(began).Seconds(), err
}

// last waits, unless what is measured ends before.
func last(ctx context.Context, d time.Duration, ended <-chan error) error {
	select {
	case err := <-ended:
		return fmt.Errorf("it stopped: %w", err)
	case <-time.After(d):
		return context.Cause(ctx)
	}
}

// send sends until ctx ends: at the rate, or as fast as messages are handled.
func (r *run) send(ctx context.Context, sending *sync.WaitGroup) {
	due := make(chan struct{}, senders)
	sending.Go(func() {
		defer close(due)
		for next := time.Now(); ctx.Err() == nil; {
			if r.load.Rate > 0 {
				next = next.Add(time.Duration(float64(time.Second) / r.load.Rate))
				if pause.For(ctx, time.Until(next)) != nil {
					return
				}
			}
			select {
			case r.flight <- struct{}{}:
			case <-ctx.Done():
				return
			}
			due <- struct{}{}
		}
	})
	active := min(senders, r.load.Entities)
	for i := range active {
		sending.Go(func() {
			numbers := map[int64]int64{}
			entity := int64(i)
			for range due {
				if entity += int64(active); entity >= int64(r.load.Entities) {
					entity = int64(i)
				}
				numbers[entity]++
				m := Message{Entity: entity + 1, N: numbers[entity], Sent: int64(time.Since(r.site.began))}
				err := pgx.BeginFunc(context.WithoutCancel(ctx), r.site.Pool, func(tx pgx.Tx) error { return r.queue.Send(context.WithoutCancel(ctx), tx, m) })
				if err != nil {
					<-r.flight
				}
			}
		})
	}
}

func (r *run) begin(messages []Message) (left func()) {
	r.gate.RLock()
	now := int64(time.Since(r.site.began))
	r.gate.RUnlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	e := messages[0].Entity
	if r.running[e] > 0 {
		r.overlaps++
	}
	r.running[e]++
	for _, m := range messages {
		if r.timing && m.Sent > 0 {
			r.latency.Add(time.Duration(now - m.Sent))
		}
	}
	return func() { r.leave(e) }
}

func (r *run) leave(entity int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.running[entity]--; r.running[entity] == 0 {
		delete(r.running, entity)
	}
}

func (r *run) end(messages []Message) {
	r.handled.Add(int64(len(messages)))
	for _, m := range messages {
		if m.Sent > 0 {
			<-r.flight
		}
	}
}

// result asks the table what was done.
func (r *run) result(ctx context.Context, rate float64) (Result, error) {
	result := Result{Rate: rate, Latency: r.latency, Overlaps: r.overlaps}
	err := r.site.Pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM handled),
		(SELECT count(*) FROM (SELECT FROM handled GROUP BY entity, n HAVING count(*) > 1) AS twice),
		(SELECT count(*) FROM (SELECT n < max(n) OVER (PARTITION BY entity ORDER BY seq) AS late FROM handled) AS all_rows WHERE late)`).
		Scan(&result.Handled, &result.Twice, &result.Disorder)
	return result, err
}
