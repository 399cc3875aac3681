package multiplex

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A Config says how to multiplex.
type Config struct {
	Lines    int // sessions that carry locks
	Lanes    int // sessions that wait
	MaxLocks int // locks of the Source; 0 = a twentieth of the server's lock table, at least 100
}

// A Source makes virtual sessions.
type Source struct {
	inner  session.Source
	config Config
	lines  []line
	lanes  lanes

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // carriers, lanes, and who tells of their loss

	mu     sync.Mutex
	closed bool

	pool    sync.Pool    // of *op
	limit   atomic.Int64 // of used
	used    atomic.Int64 // locks that are held, tried or waited for
	batches atomic.Int64
	ops     atomic.Int64
}

var _ session.Source = (*Source)(nil)

// New returns a Source on sessions of another one, which it closes.
func New(inner session.Source, config Config) *Source {
	s := &Source{inner: inner, config: config, lines: make([]line, config.Lines)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	for i := range s.lines {
		s.lines[i].source, s.lines[i].looking = s, make(chan struct{}, 1)
	}
	s.lanes.source, s.lanes.all = s, make(map[*lane]struct{})
	s.setLimit()
	s.wg.Add(1) // until Close
	return s
}

// Acquire returns a virtual session; it connects the tag's line if need be.
func (s *Source) Acquire(ctx context.Context, tag namespace.Tag, deadline time.Time) (session.Session, error) {
	c, err := s.carrier(ctx, tag, deadline)
	if err != nil {
		return nil, err
	}
	v := new(Session)
	v.init(s, c)
	return v, nil
}

// Attach makes v, which must be zero, a virtual session, if the tag's line is
// connected; else v stays zero.
func (s *Source) Attach(v *Session, tag namespace.Tag) bool {
	c := s.line(tag).current.Load()
	if c == nil {
		return false
	}
	v.init(s, c)
	return true
}

func (s *Source) line(tag namespace.Tag) *line { return &s.lines[spread(tag)%uint64(len(s.lines))] }

func (s *Source) carrier(ctx context.Context, tag namespace.Tag, deadline time.Time) (*carrier, error) {
	l := s.line(tag)
	if c := l.current.Load(); c != nil {
		return c, nil
	}
	return l.attach(ctx, deadline)
}

// spread is a hash of a tag that is the same in every process.
func spread(tag namespace.Tag) uint64 {
	h := uint64(tag.ClassID)<<32 | uint64(tag.ObjID)
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd // of MurmurHash3's finalizer
	h ^= h >> 33
	return h
}

// Stats returns the counters of the sessions, and of what they carry.
func (s *Source) Stats() session.Stats {
	stats := s.inner.Stats()
	stats.Multiplexed = true
	stats.Locks, stats.MaxLocks = int(s.used.Load()), int(s.limit.Load())
	stats.Batches, stats.Operations = s.batches.Load(), s.ops.Load()
	for i := range s.lines {
		if c := s.lines[i].current.Load(); c != nil && c.inUse() {
			stats.InUse++
		}
	}
	stats.InUse += s.lanes.inUse()
	return stats
}

const (
	share    = 20  // of the server's lock table, the default for one Source
	minLocks = 100 // and its minimum
)

// setLimit follows the server's settings, which can change with a restart.
func (s *Source) setLimit() {
	limit := s.config.MaxLocks
	if limit == 0 {
		limit = max(s.inner.Stats().LockTable/share, minLocks)
	}
	s.limit.Store(int64(limit))
}

// reserve counts a lock that is about to be taken, or refuses it.
func (s *Source) reserve(n int) error {
	limit := int(s.limit.Load())
	if used := s.used.Add(int64(n)); used > int64(limit) {
		s.used.Add(-int64(n))
		return &session.CapError{Locks: int(used) - n, MaxLocks: limit, LockTable: s.inner.Stats().LockTable}
	}
	return nil
}

// Close ends all sessions, and blocks until those that are in use have been given
// back.
func (s *Source) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	for i := range s.lines {
		s.lines[i].close()
	}
	s.lanes.close()
	s.wg.Done()
	s.wg.Wait()
	s.inner.Close()
}

// background runs f on a goroutine that Close waits for, or here once it does.
func (s *Source) background(f func()) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		f()
		return
	}
	s.wg.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.wg.Done()
		f()
	}()
}
