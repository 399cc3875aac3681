package leader

import (
	"context"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
)

// A sighting is the result of one look for the leader.
type sighting struct {
	holder Holder
	ok     bool
	at     time.Time
}

// LeaderSeen returns the leader that this node saw when it last checked, and the time of that check, without
// I/O. ok is false if nobody led, and at is zero if the node has not checked yet.
//
// A follower checks who leads each time its attempt is refused, over a connection that its backend has open
// anyway. So its information can be as old as the delay between two attempts (2 s by default, see Config.Retry)
// plus a RenewTimeout. It is older if the backend cannot be reached. A leader reports itself as of its last
// good renewal. When this node no longer leads, LeaderSeen reports no leader until one of the node's attempts
// is refused.
//
// A node checks only if OnNewLeader is set, or after the first call of LeaderSeen. Otherwise the checks
// cost nothing. With a backend that is not an Inspector, nodes see only themselves.
//
// The result may be out of date. To find the present leader, call Leader. Guard writes that must not
// come late.
func (e *Elector) LeaderSeen() (holder Holder, ok bool, at time.Time) {
	e.watches.Store(true)
	if t := e.current.Load(); t != nil && t.ctx.Err() == nil {
		return e.self(t), true, t.until.Moment().Add(-t.trust).Mono
	}
	if s := e.seen.Load(); s != nil {
		return s.holder, s.ok, s.at
	}
	return Holder{}, false, time.Time{}
}

// self describes this node as the leader.
func (e *Elector) self(t *activeTerm) Holder {
	return Holder{Identity: e.config.Identity, Term: t.term, Since: t.began}
}

// look asks the backend for the leader, if a caller or callback wants to know.
func (d *drive) look(quit context.Context) {
	if !d.watches.Load() || d.inspect == nil {
		return
	}
	defer d.occupied()()
	ctx, cancel := context.WithTimeout(quit, d.config.RenewTimeout)
	defer cancel()
	at := time.Now()
	holder, ok, err := d.inspect(ctx)
	if err != nil {
		d.log.Debug("looking for the leader failed", slog.Any("error", err))
		return // the earlier sighting stays, with its time
	}
	d.sees(sighting{holder, ok, at})
}

// sees stores a sighting and reports a new leader.
func (d *drive) sees(s sighting) {
	d.seen.Store(&s)
	if !s.ok || s.holder.Identity == d.lastLeader || !d.watches.Load() {
		return
	}
	d.lastLeader = s.holder.Identity
	d.emit(Event{Kind: EventNewLeader, Holder: s.holder})
}

// asideLook is the pause after each of the asideLooks looks of a node that stands aside. A single look can
// miss another candidate that is between two waits, which are far apart on a busy machine. Together the looks
// last longer than a candidate stands back for another that does not come.
const (
	asideLook  = 200 * time.Millisecond
	asideLooks = 4
)

// contested reports whether another candidate wants to lead. On an error, or when quit ends, it returns true.
func (d *drive) contested(quit context.Context) bool {
	for range asideLooks {
		ctx, cancel := context.WithTimeout(quit, d.config.RenewTimeout)
		others, err := d.contest.Contested(ctx)
		cancel()
		if others || err != nil || pause.For(quit, asideLook) != nil {
			return true
		}
	}
	return false
}
