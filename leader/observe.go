package leader

import (
	"context"
	"log/slog"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
)

// A sighting is who led when this node looked.
type sighting struct {
	holder Holder
	ok     bool
	at     time.Time
}

// LeaderSeen returns who led when this node looked last, and when that was, without
// I/O. ok is false if nobody did, and at is zero if it has not looked yet.
//
// A node looks each time that an attempt of its is refused, on what its backend has
// open anyway: so what a follower knows is as old as the delay between two attempts
// (2 s by default, see Config.Retry) and a RenewTimeout, unless the backend cannot be
// reached. A leader knows of itself from its last good renewal. After it has led
// it knows of nobody until an attempt of its is refused. Looking begins with the first call of
// LeaderSeen or OnNewLeader: others do not pay for it. Nodes of a backend that is no
// Inspector see themselves only.
//
// What was seen can be over: ask Leader for what is so now, and guard what must not be late.
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

// self is this node as a leader.
func (e *Elector) self(t *activeTerm) Holder {
	return Holder{Identity: e.config.Identity, Term: t.term, Since: t.began}
}

// look asks the backend who leads, if somebody wants to know.
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
		return // what was seen before stays, and its time says so
	}
	d.sees(sighting{holder, ok, at})
}

// sees notes who leads, and reports it if it is another.
func (d *drive) sees(s sighting) {
	d.seen.Store(&s)
	if !s.ok || s.holder.Identity == d.lastLeader || !d.watches.Load() {
		return
	}
	d.lastLeader = s.holder.Identity
	d.emit(Event{Kind: EventNewLeader, Holder: s.holder})
}

// asideLook is the time after each of asideLooks looks of a node that stands aside: some of them can meet another candidate between
// two waits, which lie far apart on a busy machine. Together they last longer than candidates stand back for one that does not come.
const (
	asideLook  = 200 * time.Millisecond
	asideLooks = 4
)

// contested reports whether another candidate wants to lead, as far as is known.
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
