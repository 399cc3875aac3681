package shardscmd

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/leader/shards"
)

func newPin(app *program.App) *cobra.Command {
	var flags groupFlags
	var o order
	var remove bool
	cmd := &cobra.Command{
		Use:   "pin GROUP SHARD NODE",
		Short: "Make a node own a shard",
		Long: `Make the node with this identity own a shard, even beyond its fair share. The current owner
gives the shard up at once, when its work has ended. While the pinned node is away or
draining, other nodes own the shard. The pin stays until --remove.

Exit codes: 0 the order is recorded, and with --wait the node owns the shard; 3 there is no
such shard or node, or with --remove no pin; 75 another node still owned the shard when the
wait ended.`,
		Example: "  pglatch shards pin tenants acme web-3 --wait 1m\n  pglatch shards pin tenants acme --remove",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if !remove {
				return flags.with(app, cmd, args, 3, func(g *Group) error {
					return g.pin(cmd.Context(), app, args[1], args[2], o)
				})
			}
			if len(args) != 2 || o.wait > 0 {
				return program.UsageError("give GROUP SHARD --remove, without a NODE and --wait")
			}
			return flags.with(app, cmd, args, 2, func(g *Group) error {
				p, err := g.Unpin(cmd.Context(), args[1])
				if err != nil {
					return err
				}
				return app.Print(program.Sentence(p, p.String()))
			})
		},
	}
	flags.addFlags(cmd.Flags())
	o.addFlags(cmd.Flags(), "the node owns it", "a shard or node")
	cmd.Flags().BoolVar(&remove, "remove", false, "remove the pin")
	flags.complete(app, cmd, names, nodes)
	return cmd
}

// A Pinned is the output of pin.
type Pinned struct {
	Group string `json:"group"`
	Shard string `json:"shard"`
	Node  string `json:"node,omitempty"` // none = it is no longer pinned
	Owner string `json:"owner,omitempty"`
}

// String says what was ordered.
func (p Pinned) String() string {
	what := program.Printable(p.Shard) + " of " + program.Printable(p.Group)
	node, owner := program.Printable(p.Node), program.Printable(p.Owner)
	switch {
	case p.Node == "":
		return what + " is not pinned any more"
	case p.Owner == p.Node:
		return fmt.Sprintf("%s is pinned to %s, which owns it", what, node)
	case p.Owner == "":
		return fmt.Sprintf("%s is pinned to %s; nobody owns it now", what, node)
	}
	return fmt.Sprintf("%s is pinned to %s; %s owns it now", what, node, owner)
}

func (g *Group) pin(ctx context.Context, app *program.App, name, identity string, o order) error {
	p, idle, err := g.Pin(ctx, name, identity, o.force)
	if err != nil {
		return err
	}
	if idle {
		app.Logger().Warn(Idle, slog.String("node", identity))
	}
	if o.wait > 0 {
		if err := g.until(ctx, app, o.wait, func(seen shards.Group) error {
			s, _ := g.shard(seen, name)
			if p.Owner = s.Owner; s.Owner != identity {
				return fmt.Errorf("%s is owned by %s, and not by %s", name, cmp.Or(s.Owner, "nobody"), identity)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return app.Print(program.Sentence(p, p.String()))
}

// Idle is said of a pin that cannot be executed yet.
const Idle = "the node takes no shards now: others own it until it does"

// Pin has a node own a shard. force: also a shard or node that was not seen. idle: what Idle says.
func (g *Group) Pin(ctx context.Context, name, identity string, force bool) (p Pinned, idle bool, err error) {
	seen, err := g.Look(ctx)
	if err != nil {
		return p, false, err
	}
	s, err := g.shard(seen, name)
	if err != nil && !force {
		return p, false, err
	}
	m, err := g.member(seen, identity)
	if err != nil && !force {
		return p, false, err
	}
	if err := g.fail(ctx, g.backend.Pin(ctx, name, identity)); err != nil {
		return p, false, err
	}
	return Pinned{g.name, name, identity, s.Owner}, !takes(m), nil
}

// Unpin removes the pin of a shard.
func (g *Group) Unpin(ctx context.Context, name string) (p Pinned, err error) {
	seen, err := g.Look(ctx)
	if err != nil {
		return p, err
	}
	if seen.Pins[name] == "" {
		if _, err := g.shard(seen, name); err != nil {
			return p, err
		}
		return p, &program.ExitError{Code: program.ExitFree, Err: fmt.Errorf("%s of %s is not pinned", name, g.name)}
	}
	return Pinned{Group: g.name, Shard: name}, g.fail(ctx, g.backend.Pin(ctx, name, ""))
}

// shard returns a shard that was seen.
func (g *Group) shard(seen shards.Group, name string) (shards.Seen, error) {
	i := slices.IndexFunc(seen.Shards, func(s shards.Seen) bool { return s.Name == name })
	if i < 0 {
		return shards.Seen{}, unknown("shard %q in group %s: it has %s", name, g.name, some(seen.Shards, func(s shards.Seen) string { return s.Name }))
	}
	return seen.Shards[i], nil
}
