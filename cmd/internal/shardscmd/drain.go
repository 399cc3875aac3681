package shardscmd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/shards"
)

// An order is a command's requested state of a group.
type order struct {
	wait  time.Duration
	force bool
}

func (o *order) addFlags(f *pflag.FlagSet, until, unseen string) {
	f.DurationVarP(&o.wait, "wait", "w", 0, "wait up to this long until "+until+"; else exit code 75")
	f.BoolVar(&o.force, "force", false, "accept "+unseen+" that was never seen")
}

func (o *order) check() error { return program.NotNegative("wait", o.wait, "") }

func newDrain(app *program.App) *cobra.Command {
	var flags groupFlags
	var o order
	var undo bool
	cmd := &cobra.Command{
		Use:        "drain GROUP NODE",
		Short:      "Make a node give up its shards, and claim none",
		SuggestFor: []string{"cordon", "evict"},
		Long: `Make the node with this identity give up its shards, as far as other nodes can take them, and
claim none. Use it before the node's host goes down, or when its work fails. The node still
takes part in the group, and stays drained, even after a restart, until --undo.

Exit codes: 0 the order is recorded, and with --wait the node owns nothing any more; 3 there
is no such node; 75 the node still owned shards when the wait ended.`,
		Example: "  pglatch shards drain tenants web-3 --wait 2m\n  pglatch shards drain tenants web-3 --undo",
		RunE: func(cmd *cobra.Command, args []string) error {
			switch err := o.check(); {
			case err != nil:
				return err
			case undo && o.wait > 0:
				return program.UsageError("--wait is for a drain, and not for --undo")
			}
			return flags.with(app, cmd, args, 2, func(g *Group) error {
				return g.drain(cmd.Context(), app, args[1], !undo, o)
			})
		},
	}
	flags.addFlags(cmd.Flags())
	o.addFlags(cmd.Flags(), "the node owns nothing", "a node")
	cmd.Flags().BoolVar(&undo, "undo", false, "let it claim shards again")
	flags.complete(app, cmd, nodes)
	return cmd
}

// drain gives the order, and waits until it is executed.
func (g *Group) drain(ctx context.Context, app *program.App, identity string, drain bool, o order) error {
	d, alone, err := g.Drain(ctx, identity, drain, o.force)
	if err != nil {
		return err
	}
	if alone {
		app.Logger().Warn(Alone, slog.String("node", identity))
	}
	if o.wait > 0 {
		if err := g.until(ctx, app, o.wait, func(seen shards.Group) error {
			m, _ := g.member(seen, identity)
			if d.Owned = m.Owned; m.Owned > 0 {
				return fmt.Errorf("%s still owns %d shards", identity, m.Owned)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return app.Print(program.Sentence(d, d.String()))
}

// Alone is said of a drain that cannot be executed yet.
const Alone = "no other node takes shards: it keeps what it owns until one does"

// Drain has a node give up its shards, or undoes that. force: also a node that was not seen. alone: what Alone says.
func (g *Group) Drain(ctx context.Context, identity string, drain, force bool) (d Drained, alone bool, err error) {
	seen, err := g.Look(ctx)
	if err != nil {
		return d, false, err
	}
	m, err := g.member(seen, identity)
	if err != nil && !force {
		return d, false, err
	}
	alone = drain && !slices.ContainsFunc(seen.Members, func(other shards.Member) bool { return other.Identity != identity && takes(other) })
	if err := g.fail(ctx, g.backend.Drain(ctx, identity, drain)); err != nil {
		return d, false, err
	}
	return Drained{g.name, identity, drain, m.Owned}, alone, nil
}

// takes reports whether a node takes over shards.
func takes(m shards.Member) bool { return !m.Away && !m.Draining && !m.Drained }

// A Drained is the output of drain.
type Drained struct {
	Group   string `json:"group"`
	Node    string `json:"node"`
	Drained bool   `json:"drained"`
	Owned   int    `json:"owned"`
}

// String says what was ordered.
func (d Drained) String() string {
	node, group := program.Printable(d.Node), program.Printable(d.Group)
	switch {
	case !d.Drained:
		return fmt.Sprintf("%s of %s may claim shards again", node, group)
	case d.Owned == 0:
		return fmt.Sprintf("%s of %s is drained: it owns no shard", node, group)
	}
	return fmt.Sprintf("%s of %s is to give up its shards: it owns %d", node, group, d.Owned)
}

// lookEvery is the interval between the queries of a waiting command.
const lookEvery = 500 * time.Millisecond

// until waits until the group's state satisfies check. The order has been given already. A failed query, as when the
// server ends the session, is retried until the time is over, unless no retry can succeed.
func (g *Group) until(ctx context.Context, app *program.App, wait time.Duration, check func(shards.Group) error) error {
	failed := false
	for end := time.Now().Add(wait); ; {
		seen, missing := g.Look(ctx)
		again := missing != nil
		switch {
		case !again:
			missing = check(seen)
		case ctx.Err() != nil || errors.Is(missing, leader.ErrPermanent):
			return missing
		case !failed:
			app.Logger().Warn("looking failed: it is tried again", slog.Any("error", missing))
		}
		failed = again
		left := time.Until(end)
		switch {
		case missing == nil:
			return nil
		case left <= 0 && failed:
			return missing
		case left <= 0:
			return &program.ExitError{Code: program.ExitBusy, Err: fmt.Errorf("%w after %v", missing, wait)}
		}
		if err := pause.For(ctx, min(left, lookEvery)); err != nil {
			return g.fail(ctx, err)
		}
	}
}
