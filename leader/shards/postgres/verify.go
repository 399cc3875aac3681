package postgres

import (
	"maps"
	"slices"
	"time"

	"github.com/pglatch/pglatch/leader/shards/postgres/internal/group"
)

// suspect records shards whose term or session in a view differs from what this node's sessions know.
// Somebody has changed or deleted their rows, so all guards are refused. began is when the look began.
func (b *Backend) suspect(owners map[string]group.Owner, began time.Time) {
	if owners == nil {
		return // nothing has changed
	}
	b.mu.Lock()
	sessions := slices.Collect(maps.Keys(b.sessions))
	b.mu.Unlock()
	for _, o := range sessions {
		o.mu.Lock()
		o.suspects = nil
		for name, owned := range o.held {
			if owned.since.Before(began) && owners[name] != owned.row {
				o.suspects = append(o.suspects, name)
			}
		}
		o.mu.Unlock()
	}
}

// verify records the shards whose rows differ from what the session wrote. They will be reported as lost. The
// caller has the turn.
func (o *lockSession) verify() error {
	o.mu.Lock()
	suspects := o.suspects
	o.suspects = nil
	o.mu.Unlock()
	if len(suspects) == 0 {
		return nil
	}
	rows, err := o.backend.group.Rows(o.session, suspects)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range suspects {
		if owned, held := o.held[name]; held && rows[name] != owned.row && !slices.Contains(o.reported, name) {
			o.odd = append(o.odd, name)
		}
	}
	return nil
}

// reports returns the shards to report as lost. Their locks are released later, when the node knows.
func (o *lockSession) reports() (lost []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	lost, o.odd = o.odd, nil
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
