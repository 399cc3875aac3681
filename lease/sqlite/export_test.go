package sqlite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/configdoc"
	"github.com/pglatch/pglatch/internal/test/frozen"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/gather"
)

// OpenAt opens a store while the wall clock shows a time.
func OpenAt(ctx context.Context, path string, cfg Config, wall time.Time) (*Store, error) {
	return open(ctx, path, cfg, settings{wall: func() time.Time { return wall }})
}

// OpenEarly opens a store that answers before it commits: what is to be decided answers
// as soon as it is, and the disk then needs so long. The store is not to be given a ctx that ends.
func OpenEarly(ctx context.Context, path string, disk time.Duration) (*Store, error) {
	s, err := Open(ctx, path, Config{})
	if err != nil {
		return nil, err
	}
	s.requests.Fly = func(take func() []*request) {
		batch := take()
		for i, r := range batch {
			batch[i] = &request{ctx: r.ctx, done: make(chan struct{}), decide: func(t *txn) error {
				err := r.decide(t)
				r.answer(err)
				return err
			}}
		}
		slow := &request{ctx: ctx, done: make(chan struct{}), decide: func(*txn) error {
			<-time.After(disk)
			return nil
		}}
		s.writer.serve(append(batch, slow))
	}
	return s, nil
}

// OpenWithoutEra opens a store that reserves no tokens.
func OpenWithoutEra(ctx context.Context, path string, cfg Config) (*Store, error) {
	return open(ctx, path, cfg, settings{noEra: true})
}

// OpenLimited opens a store whose file can have so many pages.
func OpenLimited(ctx context.Context, path, pages string) (*Store, error) {
	return open(ctx, path, Config{}, settings{pragmas: []string{"max_page_count(" + pages + ")"}})
}

// OpenOnVFS opens a store whose files have this VFS of SQLite, and which syncs by a function of
// the test what it writes itself.
func OpenOnVFS(ctx context.Context, path string, cfg Config, vfs string, sync func(*os.File) error, pragmas ...string) (*Store, error) {
	return open(ctx, path, cfg, settings{vfs: vfs, sync: sync, pragmas: pragmas})
}

// FailAfter acquires in a transaction that fails then.
func (s *Store) FailAfter(ctx context.Context, r lease.AcquireRequest, cause error) error {
	return s.do(ctx, func(t *txn) error {
		if _, err := t.acquire(r, "id"); err != nil {
			return err
		}
		_, err := t.write(t.w.conn) // SQLite has it, uncommitted
		t.err = errors.Join(cause, err)
		return t.err
	})
}

// Hold keeps the writer in a transaction until it is told to go on.
func (s *Store) Hold(ctx context.Context) (goOn func()) {
	held, ended := make(chan struct{}), make(chan struct{})
	go func() {
		_ = s.do(ctx, func(*txn) error {
			close(held)
			<-ended
			return nil
		})
	}()
	<-held
	return func() { close(ended) }
}

// Waiting is how many requests the writer has not taken.
func (s *Store) Waiting() int { return s.requests.Length() }

// Integer runs a query that has one number on the connection that writes.
func (s *Store) Integer(ctx context.Context, query string) (n int64, err error) {
	err = s.do(ctx, func(t *txn) (err error) {
		n, err = t.w.conn.integer(query)
		return err
	})
	return n, err
}

// Advance lets the clock of a store that nobody uses jump, as a machine does that was
// suspended: only one of its clocks ran on.
func (s *Store) Advance(d time.Duration) {
	_ = s.do(context.Background(), func(t *txn) error {
		t.w.clock.at.Boot -= d
		return nil
	})
}

// Plans are how SQLite goes through the statements of sweeps and of the start.
func (s *Store) Plans(ctx context.Context) ([]string, error) {
	var plans []string
	for _, query := range []string{selectDue, selectEnded, selectState, selectRow + " WHERE name = ?"} {
		rows, err := s.reader.db.QueryContext(ctx, "EXPLAIN QUERY PLAN "+query, 1, 1)
		if err != nil {
			return nil, err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var id, parent, unused int
			var detail string
			if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
				return nil, err
			}
			plans = append(plans, detail)
		}
		if err := rows.Err(); err != nil {
			return nil, err
		}
	}
	return plans, nil
}

func TestCommentsOfTheConfigSayItsDefaults(t *testing.T) {
	t.Parallel()
	config, err := Config{}.withDefaults()
	require.NoError(t, err)
	configdoc.Check(t, config)
}

// A file of another version is refused (ErrForeign), so every change needs a new version, and a way to it.
func TestTheTablesOfTheFileAreFrozen(t *testing.T) {
	t.Parallel()
	facts := []string{fmt.Sprintf("application_id %#x, user_version %d", applicationID, schemaVersion)}
	table := ""
	for line := range strings.Lines(schema) {
		line = strings.Join(strings.Fields(line), " ")
		if strings.HasPrefix(line, "CREATE ") {
			table = strings.TrimSuffix(line, " (")
		}
		facts = append(facts, table+" | "+line)
	}
	frozen.Check(t, "tables", facts)
}

func TestTheNumberOfRequestsThatWaitIsBounded(t *testing.T) {
	t.Parallel()
	flies, goOn := make(chan struct{}, 1), make(chan struct{})
	var s Store
	flights := 0
	s.requests = gather.Group[*request]{Flights: 1, Most: maxBatch, Fly: func(take func() []*request) {
		require.LessOrEqual(t, len(take()), maxBatch)
		if flights++; flights == 1 {
			flies <- struct{}{}
			<-goOn
		}
	}}
	require.NoError(t, s.add(&request{}))
	<-flies
	for range maxWaiting {
		require.NoError(t, s.add(&request{}))
	}
	require.ErrorIs(t, s.add(&request{}), lease.ErrBusy)
	close(goOn)
	s.requests.Close()
	require.Zero(t, s.requests.Length())
	require.Equal(t, 1+maxWaiting/maxBatch, flights)
	require.Equal(t, ErrClosed, s.add(&request{}))
}
