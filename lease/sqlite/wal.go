package sqlite

import (
	"context"
	"os"
	"sync/atomic"
)

// A wal is the file to which commits are appended, opened beside SQLite to sync it. SQLite would
// sync it within COMMIT, by fsync. That also waits for the file's times and so, on a journaling
// file system, for the journal and all other writers there. SQLite has no POSIX locks on the WAL,
// so closing it ends none.
type wal struct {
	file     *os.File
	syncData func(*os.File) error
}

// openWAL opens the WAL of a database. The WAL exists once a connection has read.
func openWAL(path string, syncData func(*os.File) error) (*wal, error) {
	f, err := os.OpenFile(path+"-wal", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return &wal{file: f, syncData: syncData}, nil
}

// sync returns when all commits are on the disk.
func (w *wal) sync() error { return w.syncData(w.file) }

func (w *wal) close() error { return w.file.Close() }

// A gate keeps readers from returning data that is committed but not yet synced, which SQLite shows
// them. After damage, no reader passes.
type gate struct {
	shut   atomic.Pointer[chan struct{}] // nil = open
	damage atomic.Pointer[error]         // nil = none
}

// close must come before the commit, open after the sync.
func (g *gate) close() (open func()) {
	passage := make(chan struct{})
	g.shut.Store(&passage)
	return func() {
		g.shut.Store(nil)
		close(passage)
	}
}

// pass waits until all data that a reader has seen is synced. It returns why that will never
// happen, or why ctx ended.
func (g *gate) pass(ctx context.Context) error {
	if passage := g.shut.Load(); passage != nil {
		select {
		case <-*passage:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if damage := g.damage.Load(); damage != nil {
		return *damage
	}
	return nil
}
