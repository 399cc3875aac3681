package actions

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/cmd/internal/shardscmd"
	"github.com/pglatch/pglatch/leader/shards"
)

// shardKinds are the actions on shards.
func shardKinds() []kind {
	return []kind{
		{name: "drain", text: "Make a node give up its shards, and claim none", need: End, fields: []string{"group", "node"}, plan: draining(true)},
		{name: "undrain", text: "Let a node claim shards again", need: End, fields: []string{"group", "node"}, plan: draining(false)},
		{name: "pin", text: "Make a node own a shard", need: End, fields: []string{"group", "shard", "node"}, plan: pinning},
		{name: "unpin", text: "Remove the pin of a shard", need: End, fields: []string{"group", "shard"}, plan: unpinning},
	}
}

// look opens a group, and returns its state. An unknown node is refused, if node is not empty.
func look(ctx context.Context, d *Database, name, node string) (*shardscmd.Group, shards.Group, error) {
	g, err := shardscmd.Open(d.App, name, "")
	if err != nil {
		return nil, shards.Group{}, err
	}
	seen, err := g.Look(ctx)
	if err == nil && node != "" && !slices.ContainsFunc(seen.Members, func(m shards.Member) bool { return m.Identity == node }) {
		err = program.UsageError("there is no node %q in group %s", program.Printable(node), program.Printable(name))
	}
	return g, seen, err
}

func draining(drain bool) func(context.Context, *Database, *lookup.Looker, Request) (*plan, error) {
	return func(ctx context.Context, d *Database, _ *lookup.Looker, r Request) (*plan, error) {
		g, seen, err := look(ctx, d, r.Group, r.Node)
		if err != nil {
			return nil, err
		}
		node, group := quoted(r.Node), quoted(r.Group)
		p := &plan{same: fmt.Sprintf("drain %v %s %s", drain, r.Group, r.Node), title: fmt.Sprintf("Let %s of %s claim shards again", node, group)}
		if drain {
			p.title = fmt.Sprintf("Make %s of %s give up its shards, and claim none until the drain is undone", node, group)
			p.owned(seen, r.Node)
		} else {
			p.lines = []string{"Shards move to it until it owns its fair share."}
		}
		p.run = func(ctx context.Context, _ string) (string, error) {
			done, alone, err := g.Drain(ctx, r.Node, drain, false)
			text := ""
			if err == nil {
				text = done.String()
			}
			if alone {
				text += "; " + shardscmd.Alone
			}
			return text, err
		}
		return p, nil
	}
}

// owned adds the shards of a node to a plan.
func (p *plan) owned(seen shards.Group, node string) {
	var lines, others []string
	for _, s := range seen.Shards {
		if s.Owner == node {
			lines = append(lines, "it gives up "+quoted(s.Name))
			p.ends = append(p.ends, s.Name)
		}
	}
	for _, m := range seen.Members {
		if m.Identity != node && !m.Away && !m.Draining && !m.Drained {
			others = append(others, quoted(m.Identity))
		}
	}
	p.lines = append([]string{fmt.Sprintf("It owns %s. Others that take shards: %s.", count(len(p.ends), "shard"), cmp.Or(strings.Join(others[:min(10, len(others))], ", "), "none"))}, clamp(lines)...)
}

func pinning(ctx context.Context, d *Database, _ *lookup.Looker, r Request) (*plan, error) {
	g, seen, err := look(ctx, d, r.Group, r.Node)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(seen.Shards, func(s shards.Seen) bool { return s.Name == r.Shard })
	if i < 0 {
		return nil, program.UsageError("there is no shard %q in group %s", program.Printable(r.Shard), program.Printable(r.Group))
	}
	shard, node, owner := quoted(r.Shard), quoted(r.Node), seen.Shards[i].Owner
	p := &plan{same: "pin " + r.Group + " " + r.Shard + " " + r.Node, title: fmt.Sprintf("Make %s own %s of %s, until the pin is removed", node, shard, quoted(r.Group))}
	switch owner {
	case "":
		p.lines = []string{"Nobody owns it now."}
	case r.Node:
		p.lines = []string{node + " owns it now."}
	default:
		p.lines, p.ends = []string{quoted(owner) + " owns it now, and gives it up when its work has ended."}, []string{owner}
	}
	if was := seen.Pins[r.Shard]; was != "" {
		p.lines = append(p.lines, "It is pinned to "+quoted(was)+" now.")
	}
	p.run = func(ctx context.Context, _ string) (string, error) {
		done, idle, err := g.Pin(ctx, r.Shard, r.Node, false)
		if err != nil {
			return "", err
		}
		text := done.String()
		if idle {
			text += "; " + shardscmd.Idle
		}
		return text, nil
	}
	return p, nil
}

func unpinning(ctx context.Context, d *Database, _ *lookup.Looker, r Request) (*plan, error) {
	g, seen, err := look(ctx, d, r.Group, "")
	if err != nil {
		return nil, err
	}
	was := seen.Pins[r.Shard]
	if was == "" {
		return nil, program.UsageError("%s of %s is not pinned", program.Printable(r.Shard), program.Printable(r.Group))
	}
	return &plan{
		title: fmt.Sprintf("Remove the pin of %s of %s", quoted(r.Shard), quoted(r.Group)),
		lines: []string{"It is pinned to " + quoted(was) + ". Without the pin, its owner is chosen like that of any other shard."},
		same:  "unpin " + r.Group + " " + r.Shard + " " + was,
		run: func(ctx context.Context, _ string) (string, error) {
			done, err := g.Unpin(ctx, r.Shard)
			if err != nil {
				return "", err
			}
			return done.String(), nil
		},
	}, nil
}
