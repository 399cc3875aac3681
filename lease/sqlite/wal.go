package sqlite

import (
	"context"
	"os"
	"sync/atomic"
)

// A wal is the file that commits are appended to, opened beside SQLite to sync it.
// SQLite would sync it within COMMIT, by fsync, which also waits for the file's times
// and so, on a journaling file system, for the journal and whoever else writes there.
// SQLite has no POSIX locks on the WAL, which closing it would end.
type wal struct {
	file     *os.File
	syncData func(*os.File) error
}

// openWAL opens the WAL of a database, which exists once a connection has read.
func openWAL(path string, syncData func(*os.File) error) (*wal, error) {
	f, err := os.OpenFile(path+"-wal", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return &wal{file: f, syncData: syncData}, nil
}

// sync returns when all that was committed is on the disk.
func (w *wal) sync() error { return w.syncData(w.file) }

func (w *wal) close() error { return w.file.Close() }

// A gate keeps readers from telling what is committed and not yet synced: SQLite shows
// it to them. After damage nobody passes.
type gate struct {
	shut   atomic.Pointer[chan struct{}] // nil = open
	damage atomic.Pointer[error]         // nil = none
}

// close comes before the commit, open after the sync.
func (g *gate) close() (open func()) {
	passage := make(chan struct{})
	g.shut.Store(&passage)
	return func() {
		g.shut.Store(nil)
		close(passage)
	}
}

// pass waits until what a reader has seen is synced. It returns why it never will be, or
// why ctx ended.
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
