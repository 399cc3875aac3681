package sqlite

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// A writer changes the file, and has its state.
type writer struct {
	path     string
	dsn      string
	logger   *slog.Logger
	clock    clock
	counters counters
	noEra    bool                 // reserve no tokens: the control of the damage test
	durable  bool                 // SQLite syncs commits
	sync     func(*os.File) error // of settle
	damage   damage

	conn    *conn // nil after an error that may have left it in a transaction
	rows    *cache
	state   state        // as it is stored, but for the time
	seen    atomic.Int64 // the last stored time, in nanoseconds
	top     uint64       // the greatest version of any name, ever; not stored
	tally   tally
	version int64     // after the last commit; if it differs now, another program changed the file
	tried   time.Time // to reserve more tokens

	proven time.Time // of the last stored transaction; zero if one failed since
	full   bool      // the disk was full, and no space has been seen since
}

type counters struct {
	busy, failed, transactions, requests atomic.Uint64
}

// fly serves the requests that wait. One flight is under way at a time, so the writer is one
// goroutine's at a time.
func (s *Store) fly(take func() []*request) {
	batch := take()
	s.writer.serve(batch)
	s.requests.Yield(len(batch)) // a sync for half as many costs the same
}

// serve decides a batch in one transaction and answers it after the commit. If the transaction
// fails, nothing of it stays, in the file or in memory.
func (w *writer) serve(batch []*request) {
	verdicts := make([]error, len(batch))
	op, err := w.transact(batch, verdicts)
	w.counters.transactions.Add(1)
	w.counters.requests.Add(uint64(len(batch)))
	if err != nil {
		err = w.fail(op, err, len(batch))
	}
	for i, r := range batch {
		if err != nil {
			r.answer(err)
		} else {
			r.answer(verdicts[i])
		}
	}
}

// transact returns the operation in which an error came.
func (w *writer) transact(batch []*request, verdicts []error) (op string, err error) {
	if op, err = w.begin(); err != nil {
		return op, err
	}
	t := &txn{w: w, now: w.clock.now(), top: w.top, names: make(map[string]*entry)}
	for i, r := range batch {
		if verdicts[i] = r.ctx.Err(); verdicts[i] != nil {
			continue // its caller has left
		}
		verdicts[i] = r.decide(t)
		if t.err != nil {
			return "read", t.err
		}
	}
	wrote, err := t.write(w.conn)
	if err != nil {
		return "write", err
	}
	if err := w.conn.exec(w.conn.commit); err != nil {
		return "commit", err
	}
	w.keep(t)
	if w.version, err = w.conn.version(); err != nil {
		w.version = -1
	}
	if wrote {
		w.proven = t.now
		w.seen.Store(nanoseconds(t.now))
	}
	return "", nil
}

// begin opens the connection, if necessary, and a transaction. If another program changed the file,
// begin empties the cache.
func (w *writer) begin() (op string, err error) {
	if err := w.damage.found(); err != nil {
		return "begin", err
	}
	if w.conn == nil {
		if err := w.open(context.Background()); err != nil {
			return "open", err
		}
		w.state.floor = w.top // whatever the file has lost
	}
	if err := w.reserveMore(); err != nil {
		return "reserve", err
	}
	c := w.conn
	if err := c.exec(c.begin); err != nil {
		return "begin", err
	}
	version, err := c.version()
	if err == nil && version != w.version {
		err = w.load()
		w.version = version
	}
	if err != nil {
		return "begin", err
	}
	return "", nil
}

// open connects, and prepares the file if it is new.
func (w *writer) open(ctx context.Context) error {
	c, err := connect(ctx, w.dsn)
	if err != nil {
		return err
	}
	if err = c.prepareFile(); err == nil {
		err = c.prepare()
	}
	if err == nil && w.durable {
		err = w.settle(c)
	}
	if err != nil {
		return errors.Join(err, c.close())
	}
	w.conn, w.version = c, -1 // no version is -1, so the first transaction loads
	return nil
}

// fail undoes what a transaction may have left, and returns its error for the requests.
func (w *writer) fail(op string, err error, requests int) error {
	err = explain(op, w.path, err)
	w.note(err)
	again := errors.Is(err, lease.ErrBusy) // nothing was changed
	if again && !errors.Is(err, ErrFull) {
		w.counters.busy.Add(uint64(requests))
	} else {
		w.counters.failed.Add(uint64(requests))
		w.logger.Warn("transaction_failed", slog.String("op", op), slog.Int("requests", requests), slog.Any("error", err))
	}
	if e, ok := errors.AsType[*FileError](err); ok && e.Condition == ErrCorrupt { //nolint:errorlint // it is this package's
		err = w.damage.stop(*e)
	}
	if w.conn == nil {
		return err
	}
	_ = w.conn.exec(w.conn.rollback) // an error says that SQLite has rolled back by itself
	if !again {
		// Only a new connection is certain to show the file's content.
		_ = w.conn.close()
		w.conn = nil
	}
	return err
}

func (w *writer) close() error {
	if w.conn == nil {
		return nil
	}
	if w.damage.found() == nil && w.state.era > 0 {
		if err := w.seal(); err != nil {
			w.logger.Warn("not_sealed", slog.Any("error", err))
		}
	}
	return w.conn.close()
}
