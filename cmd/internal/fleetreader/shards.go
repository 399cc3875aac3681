package fleetreader

import (
	"context"
	"slices"
	"time"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/leader/shards"
	shardspg "github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/monitor/fleet"
)

// A watched is what a Reader remembers of a group.
type watched struct {
	backend *shardspg.Backend
	owners  map[string]string // of the last look
	moves   []time.Time       // of the last minute
}

func (r *Reader) readGroups(ctx context.Context, f *fleet.Fleet) error {
	names, err := column[string](ctx, r.pool, `SELECT shards FROM public.pglatch_shard UNION SELECT shards FROM public.pglatch_shard_member ORDER BY 1`)
	if err != nil {
		return err
	}
	for _, name := range cut(f, names, mostGroups) {
		g, err := r.readGroup(ctx, f, name)
		if err != nil {
			return err
		}
		f.Groups = append(f.Groups, g)
	}
	return nil
}

func (r *Reader) readGroup(ctx context.Context, f *fleet.Fleet, name string) (g fleet.Group, err error) {
	g.Name = name
	n, err := program.ParseNamespace("group", name)
	if err != nil {
		return g, nil //nolint:nilerr // no node wrote the row
	}
	w := r.groups[name]
	if w == nil {
		backend, err := shardspg.New(shardspg.Config{ConnConfig: r.config, Namespace: n})
		if err != nil {
			return g, err
		}
		w = &watched{backend: backend}
		r.groups[name] = w
	}
	seen, err := shards.Observe(ctx, w.backend)
	if err != nil {
		return g, err
	}
	g.Shards, g.Owned, g.Certain, g.Moves = len(seen.Shards), seen.Owned(), seen.Certain, w.moved(seen, time.Now())
	for _, m := range seen.Members {
		g.Nodes = append(g.Nodes, fleet.Node{
			Identity: m.Identity, Weight: m.Weight, Owned: m.Owned, Fair: m.Fair, Draining: m.Draining, Drained: m.Drained, Away: m.Away, Refuses: m.Refuses != "",
		})
	}
	listed := cut(f, seen.Shards, mostShards)
	all := make([]string, len(listed))
	for i, s := range listed {
		one := fleet.Shard{Name: s.Name, Owner: s.Owner, Pin: s.Pin}
		if !s.Term.IsZero() {
			one.Term = s.Term.String()
		}
		g.List, all[i] = append(g.List, one), s.Name
	}
	for _, l := range w.backend.Locks(all) {
		kind := fleet.ShardLock
		if l.Guard {
			kind = fleet.GuardLock
		}
		f.Locks[l.Tag] = fleet.Lock{Kind: kind, Text: l.Name, Group: name}
	}
	return g, nil
}

// moved returns how many shards changed their owner in the last minute.
func (w *watched) moved(seen shards.Group, now time.Time) int {
	owners := make(map[string]string, len(seen.Shards))
	for _, s := range seen.Shards {
		before, known := w.owners[s.Name]
		if owners[s.Name] = s.Owner; s.Owner == "" {
			owners[s.Name] = before // until another node owns it
		}
		if known && before != "" && before != owners[s.Name] {
			w.moves = append(w.moves, now)
		}
	}
	w.owners = owners
	w.moves = slices.DeleteFunc(w.moves, func(at time.Time) bool { return now.Sub(at) > time.Minute })
	return len(w.moves)
}
