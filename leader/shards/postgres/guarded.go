package postgres

import (
	"log/slog"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/leader/internal/pgguard"
	"github.com/pglatch/pglatch/leader/shards/driver"
)

const (
	// namedAfter is how long a claim waits for guarded transactions before it looks for their owners.
	namedAfter = 100 * time.Millisecond
	// namedAtOnce is the maximum number of shards for which one claim looks.
	namedAtOnce = 20
)

// waits record since when claims of shards wait for guarded transactions of earlier terms.
type waits struct {
	mu  sync.Mutex
	all map[string]*wait
}

type wait struct {
	since, last time.Time
	logged      uint32 // the pid that was logged last
}

// of returns the wait for a shard. A new wait begins if none was under way during the last lease.
func (w *waits) of(name string, ttl time.Duration) *wait {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	one := w.all[name]
	if one == nil || now.Sub(one.last) > ttl {
		if w.all == nil {
			w.all = map[string]*wait{}
		}
		one = &wait{since: now}
		w.all[name] = one
	}
	one.last = now
	return one
}

func (w *waits) over(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, name)
}

// awaitGuards looks for the transactions that block claims of these shards, and ends them when their time is
// over.
func (o *lockSession) awaitGuards(names []string) (*GuardedError, error) {
	b := o.backend
	e := &GuardedError{Shards: names}
	looks := 0
	for _, name := range names {
		w := b.waits.of(name, o.ttl)
		if time.Since(w.since) < namedAfter || looks == namedAtOnce {
			continue
		}
		looks++
		guards, err := pgguard.Guards(o.session, b.group.Guard(name))
		if err != nil {
			return nil, err
		}
		if pending := b.pending(name, w, guards); e.Pending == nil || e.Pending.Needs == "" && pending != nil && pending.Needs != "" {
			e.Pending = pending
		}
		if timeout := b.guardTimeout(o.ttl); timeout < 0 || time.Since(w.since) < timeout {
			continue
		}
		if err := o.endGuards(name, guards); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (b *Backend) guardTimeout(ttl time.Duration) time.Duration {
	if b.config.GuardTimeout == 0 {
		return ttl
	}
	return b.config.GuardTimeout
}

// pending describes the first of the transactions, or the first that the role may not end; nil = none.
func (b *Backend) pending(name string, w *wait, guards []pgguard.Guarded) *PendingError {
	if len(guards) == 0 {
		return nil
	}
	by := pgguard.Foremost(guards)
	p := &PendingError{
		Election: "shard " + name + " of " + b.config.Namespace.String(), Guarded: true, PID: by.PID, ApplicationName: by.ApplicationName,
		Role: by.Role, Since: by.Since(), Prepared: by.Prepared, Waited: time.Since(w.since), Cause: errGuarded,
	}
	if b.config.GuardTimeout >= 0 {
		p.Needs = by.Needs()
	}
	if w.logged != by.PID {
		w.logged = by.PID
		b.config.Logger.Warn("a claim waits for a guarded transaction", slog.String("shard", name), slog.Uint64("pid", uint64(by.PID)), slog.Any("error", p))
	}
	return p
}

// endGuards ends the sessions that the role may end, and makes the node look again soon.
func (o *lockSession) endGuards(name string, guards []pgguard.Guarded) error {
	ended, err := pgguard.EndGuards(o.session, o.backend.group.Guard(name), guards)
	log := o.backend.config.Logger.With(slog.String("shard", name))
	if sqlstate.Of(err) != "" {
		log.Warn("guarded transactions could not be ended", slog.Any("error", err))
		return nil
	}
	if ended > 0 {
		log.Warn("guarded transactions of an earlier term are ended", slog.Int("ended", ended))
		o.signal(driver.Changes{Other: true})
	}
	return err
}
