package pgsession

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/session"
)

// An origin identifies the server of a session. The zero origin is a server that does not report it.
type origin struct {
	system   string // the system identifier, which initdb creates and a standby shares
	timeline uint32 // each promotion increments it
}

// originSQL has two columns: the system identifier, and the name of a WAL file, which begins with the
// timeline; "" on a standby. pg_control_checkpoint() would return the old timeline until the first checkpoint
// after a promotion. Any role may call these functions by default.
const originSQL = `(SELECT system_identifier FROM pg_catalog.pg_control_system()),
	CASE WHEN pg_catalog.pg_is_in_recovery() THEN '' ELSE pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()) END`

// parseOrigin parses the columns of originSQL.
func parseOrigin(system, walFile string) origin {
	if len(walFile) < 8 {
		return origin{}
	}
	timeline, err := strconv.ParseUint(walFile[:8], 16, 32)
	if err != nil {
		return origin{}
	}
	return origin{system: system, timeline: uint32(timeline)}
}

// A lineage keeps the sessions of a Pool on one server at a time, because another server has other locks. In
// one system the timeline only increases: a lower one belongs to an old primary that came back after a
// promotion. The first session on a higher timeline ends all sessions on the old one. It waits until their
// owners have closed them, and therefore all holders on them have been notified.
type lineage struct {
	drain time.Duration // after a loss, the delay before locks are granted on a higher timeline

	mu      sync.Mutex
	known   origin                     // the highest; zero = none yet
	current map[*Session]struct{}      // in use, on known
	older   map[*Session]time.Duration // in use, on lower timelines, and since when, in boottime
	lost    uint32                     // the timeline of the last session that was lost
	lostAt  time.Duration              // its boottime
	changed chan struct{}              // closed by the next leave; nil = no waiter
}

func newLineage(drain time.Duration) *lineage {
	return &lineage{drain: drain, current: map[*Session]struct{}{}, older: map[*Session]time.Duration{}}
}

// check refuses a server that the Pool's sessions may not use. A nil lineage refuses none.
func (l *lineage) check(o origin, conn *pgconn.PgConn) error {
	if l == nil || o == (origin{}) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if refused := l.refuse(o); refused != nil {
		refused.Server = conn.Conn().RemoteAddr().String()
		return refused
	}
	return nil
}

// refuse compares an origin with the known one. The caller holds mu.
func (l *lineage) refuse(o origin) *session.OtherServerError {
	if l.known == (origin{}) || o.system == l.known.system && o.timeline >= l.known.timeline {
		return nil
	}
	return &session.OtherServerError{System: o.system, Timeline: o.timeline, KnownSystem: l.known.system, KnownTimeline: l.known.timeline}
}

// enter registers a session as in use. If its timeline is higher than before, enter first ends the older
// sessions and waits for their end; ctx bounds the wait.
func (l *lineage) enter(ctx context.Context, s *Session) error {
	if l == nil || s.link.origin == (origin{}) {
		return nil
	}
	for {
		older, pause, changed, err := l.admit(s)
		for _, o := range older {
			o.Kill(&session.OtherServerError{
				System: s.link.origin.system, Timeline: o.link.origin.timeline,
				KnownSystem: s.link.origin.system, KnownTimeline: s.link.origin.timeline,
			})
		}
		if changed == nil {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		timer.Stop()
		if err != nil {
			return err
		}
	}
}

// admit registers the session or refuses it, or makes it wait for the end of older ones: for pause, or until
// changed is closed. The caller kills the older sessions in any case. One whose first statement is on its way
// has no lease yet, and its lock would be granted later.
func (l *lineage) admit(s *Session) (older []*Session, pause time.Duration, changed <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if refused := l.refuse(s.link.origin); refused != nil {
		return nil, 0, nil, refused
	}
	if s.link.origin != l.known {
		l.known = s.link.origin
		for o := range l.current {
			l.older[o] = boottime.Now()
		}
		clear(l.current)
	}
	if l.lostAt != 0 && l.lost < l.known.timeline {
		pause = l.lostAt + l.drain - boottime.Now()
	}
	wait := pause > 0
	for o, since := range l.older {
		older = append(older, o)
		lease := o.lease() // after it the server has ended the session, whatever its owner does
		if o.deadline.Load() == 0 {
			lease = since + o.from.config.T - boottime.Now()
		}
		if lease <= 0 {
			delete(l.older, o)
			continue
		}
		if !wait || lease < pause {
			pause = lease
		}
		wait = true
	}
	if !wait {
		l.current[s] = struct{}{}
		return older, 0, nil, nil
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return older, pause, l.changed, nil
}

// leave removes a session that its owner has closed.
func (l *lineage) leave(s *Session) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.current, s)
	delete(l.older, s)
	if s.lost.Load() != nil {
		l.lost, l.lostAt = max(l.lost, s.link.origin.timeline), boottime.Now()
	}
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}
