package postgres

import (
	"maps"
	"slices"
	"time"

	"github.com/pglatch/pglatch/leader/shards/postgres/internal/group"
)

// verify finds the shards of this node's sessions whose session or term in a view is not what the session knows. Somebody
// has changed or deleted their rows, so all guards are refused. The next Renew reports them as lost. began is when
// the look began.
func (b *Backend) verify(owners map[string]group.Owner, began time.Time) {
	if owners == nil {
		return // nothing has changed
	}
	b.mu.Lock()
	sessions := slices.Collect(maps.Keys(b.sessions))
	b.mu.Unlock()
	for _, o := range sessions {
		o.mu.Lock()
		o.odd = nil
		for name, owned := range o.held {
			if owned.since.Before(began) && owners[name] != owned.row && !slices.Contains(o.reported, name) {
				o.odd = append(o.odd, name)
			}
		}
		o.mu.Unlock()
	}
}

// reports returns the shards to report as lost, without those that a call releases now. Their locks are released later, when the node knows.
func (o *lockSession) reports() (lost []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lost, o.odd = slices.DeleteFunc(o.odd, func(name string) bool { return slices.Contains(o.leaving, name) }), nil
	o.reported = append(o.reported, lost...)
	return lost
}

// giveBack releases the shards that were reported as lost. The caller has the turn.
func (o *lockSession) giveBack() error {
	o.mu.Lock()
	reported := o.reported
	o.reported = nil
	o.mu.Unlock()
	if len(reported) == 0 {
		return nil
	}
	return o.release(reported)
}
