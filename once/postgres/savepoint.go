package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/pglatch/pglatch/internal/pgsession"
)

// A savepoint is the point to which a tick's claim and work can be undone, with the locks on both.
// The row of a taken tick is locked as well (PostgreSQL manual, INSERT, on ON CONFLICT DO UPDATE).
type savepoint struct {
	tx   pgsession.Tx
	name string
}

// savepoints are the numbers in use in this process. Each is part of one savepoint's name. The work
// of a tick can run other ticks in its transaction, and ROLLBACK TO goes back to the last savepoint
// of a name. The lowest free number is used, because pg_stat_statements keeps each name.
var savepoints struct {
	mu   sync.Mutex
	used []bool
}

// newSavepoint returns a savepoint whose name no other has until it is free.
func newSavepoint(tx pgsession.Tx) (s savepoint, free func()) {
	savepoints.mu.Lock()
	defer savepoints.mu.Unlock()
	n := slices.Index(savepoints.used, false)
	if n < 0 {
		n = len(savepoints.used)
		savepoints.used = append(savepoints.used, false)
	}
	savepoints.used[n] = true
	return savepoint{tx, fmt.Sprintf("pglatch_once_%d", n+1)}, func() {
		savepoints.mu.Lock()
		defer savepoints.mu.Unlock()
		savepoints.used[n] = false
	}
}

func (s savepoint) set(ctx context.Context) error { return s.tx.Exec(ctx, "SAVEPOINT "+s.name) }

func (s savepoint) release(ctx context.Context) error {
	return s.tx.Exec(ctx, "RELEASE SAVEPOINT "+s.name)
}

// undo undoes all changes since the savepoint, even if ctx has ended.
func (s savepoint) undo(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	err := s.tx.Exec(ctx, "ROLLBACK TO SAVEPOINT "+s.name)
	if err == nil {
		err = s.release(ctx)
	}
	if err != nil {
		return fmt.Errorf("once/postgres: undoing what was done: %w", err)
	}
	return nil
}

// call calls fn, and undoes its changes unless it returns nil.
func (s savepoint) call(ctx context.Context, fn func() error) (err error) {
	returned := false
	defer func() {
		if returned && err == nil {
			return
		}
		if undone := s.undo(ctx); undone != nil {
			err = errors.Join(err, undone)
		}
	}()
	err = fn()
	returned = true
	if err == nil {
		err = s.release(ctx)
	}
	return err
}
