package sqlite

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/pglatch/pglatch/lease/internal/gather"
)

// fileMode keeps lease ids, which prove claims, from other users.
const fileMode = 0o600

// settings are options that only tests set.
type settings struct {
	wall    func() time.Time // nil = time.Now
	noEra   bool             // reserve no tokens: the control of the damage test
	pragmas []string
	sync    func(*os.File) error // nil = (*os.File).Sync
	vfs     string               // "" = SQLite's
}

// Open opens the store in the file at path. It creates the file if its directory exists. Open reads
// a file of up to 32 MB completely, to check it. Next to the file are path-wal and path-shm, which
// SQLite removes on Close, and path.lock, which stays after Close, and keeps other processes out.
//
// On failure, Open returns a *FileError with one of this package's conditions, or *lease.BusyError,
// and no stored data is changed. ctx bounds Open, not the Store.
func Open(ctx context.Context, path string, cfg Config) (*Store, error) {
	return open(ctx, path, cfg, settings{})
}

func open(ctx context.Context, path string, cfg Config, set settings) (_ *Store, err error) {
	if cfg, err = cfg.withDefaults(); err != nil {
		return nil, err
	}
	if set.sync == nil {
		set.sync = (*os.File).Sync
	}
	if set.wall == nil {
		set.wall = time.Now
	}
	path, own, err := ownFile(path)
	if err != nil {
		return nil, explainSystem(path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, own.Close())
		}
	}()
	synchronous := "FULL" // sync the WAL in each commit, before readers see it
	if cfg.Durability == Relaxed {
		synchronous = "NORMAL" // sync around checkpoints only, so that the file stays sound
	}
	w := &writer{
		path: path,
		dsn: dataSource(path, set.vfs, cfg, append([]string{
			"synchronous(" + synchronous + ")", "fullfsync(1)", "checkpoint_fullfsync(1)", "cache_size(-8192)",
			// Short enough that the WAL is soon overwritten instead of extended: the sync of an
			// overwrite takes less than half as long.
			"wal_autocheckpoint(1000)",
		}, set.pragmas...)...),
		logger:  cfg.Logger,
		noEra:   set.noEra,
		durable: cfg.Durability == Durable,
		sync:    set.sync,
		rows:    newCache(cfg.CacheBytes),
	}
	if err := w.start(ctx, set.wall); err != nil {
		return nil, errors.Join(explain("open", path, err), w.close())
	}
	if err := own.lock.write(mark); err != nil {
		return nil, errors.Join(explainSystem(path, err), w.close())
	}
	reader, err := openReader(ctx, path, set.vfs, cfg, &w.damage)
	if err != nil {
		return nil, errors.Join(explain("open", path, err), w.close())
	}
	s := &Store{writer: w, reader: reader}
	s.requests = gather.Group[*request]{Flights: 1, Most: maxBatch, Fly: s.fly}
	s.close = sync.OnceValue(func() error {
		s.closed.Store(true)
		s.requests.Close()
		return errors.Join(s.reader.close(), w.close(), own.Close())
	})
	return s, nil
}

// start opens the file, checks it and starts the clock.
func (w *writer) start(ctx context.Context, wall func() time.Time) error {
	problem := walProblem(w.path + "-wal") // before SQLite makes a new one
	if err := w.open(ctx); err != nil {
		return err
	}
	if err := w.conn.check(ctx); err != nil {
		return err
	}
	if err := w.load(); err != nil {
		return err
	}
	if w.state.reserved > 0 && problem != "" { // the store was not closed: it had a WAL
		w.logger.Warn("wal_damaged", slog.String("file", w.path+"-wal"), slog.String("problem", problem),
			slog.String("lost", "leases that it alone knew of, which others can get now; tokens go on above all that were given"))
	}
	seen := w.state.seen
	w.clock = startClock(wall, seen)
	if back := seen.Sub(wall()); !seen.IsZero() && back > 0 {
		w.logger.Warn("clock_set_back", slog.Duration("by", back), slog.Time("goes_on_from", seen))
	}
	w.seen.Store(nanoseconds(seen))
	return w.newEra()
}
