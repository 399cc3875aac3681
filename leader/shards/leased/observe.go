package leased

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	leaderdriver "github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/lease"
)

// Observe implements driver.Observer by listing the leases of the group. A shard that nobody owns is known
// as long as the store knows its last lease: a lock server forgets it after lease.DefaultRetention.
func (b *Backend) Observe(ctx context.Context) (driver.Observation, error) {
	group, err := b.list(ctx, b.config.Name+inGroup)
	if err != nil {
		return driver.Observation{}, fmt.Errorf("shards: looking at %s: %w", b.config.Name, err)
	}
	known, err := b.records(ctx, b.config.Name+inShards) // after the group, as in Look
	if err != nil {
		return driver.Observation{}, fmt.Errorf("shards: looking at %s: %w", b.config.Name, err)
	}
	o := driver.Observation{Terms: make(map[string]driver.Term, len(known))}
	for name, r := range known {
		if shard, ok := unescape(name); ok {
			o.Terms[shard] = leaderdriver.TermOf(r.Token)
		}
	}
	maps.DeleteFunc(known, func(_ string, r lease.Record) bool { return r.State != lease.Held })
	o.View, _ = viewOf(group, known)
	o.Version = 0
	for name, r := range group {
		if identity := r.Metadata[metaValue]; strings.HasPrefix(name, ofDrain) && identity != "" {
			o.Drained = append(o.Drained, identity)
		}
	}
	slices.Sort(o.Drained)
	return o, nil
}
