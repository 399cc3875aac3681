package lockcmd

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/internal/cli/program"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

// A keyNode is a lock for which somebody waits.
type keyNode struct {
	Key     monitor.Key    `json:"key"`
	Holders []monitor.Lock `json:"holders"`
	Waiters []waiterNode   `json:"waiters"` // in the order of the queue
	// Cycle is true when the wait for this lock is part of, or behind, a cycle of waits.
	Cycle bool `json:"cycle,omitempty"`
}

// A waiterNode is a session that waits, and what waits because of it.
type waiterNode struct {
	Lock  monitor.Lock `json:"lock"`
	Holds []*keyNode   `json:"holds"` // other locks, for which somebody waits
}

// A forest builds keyNodes. Each lock appears once.
type forest struct {
	byKey map[namespace.Tag][]monitor.Lock
	order []namespace.Tag // of the locks for which somebody waits
	seen  map[namespace.Tag]bool
}

// blockingTrees returns the locks for which somebody waits. A root is one whose
// holders wait for nothing; below a waiter hang the locks that it holds.
func blockingTrees(locks []monitor.Lock) []*keyNode {
	f := forest{byKey: map[namespace.Tag][]monitor.Lock{}, seen: map[namespace.Tag]bool{}}
	waiting := map[uint32]bool{}
	for _, l := range locks {
		f.byKey[l.Tag] = append(f.byKey[l.Tag], l)
		if !l.Granted {
			waiting[l.PID] = true
			if !slices.Contains(f.order, l.Tag) {
				f.order = append(f.order, l.Tag)
			}
		}
	}
	roots := []*keyNode{}
	for _, tag := range f.order {
		if !slices.ContainsFunc(f.byKey[tag], func(l monitor.Lock) bool { return l.Granted && waiting[l.PID] }) {
			roots = append(roots, f.node(tag))
		}
	}
	for _, tag := range f.order { // what hangs on no root hangs on itself
		if !f.seen[tag] {
			n := f.node(tag)
			n.Cycle = true
			roots = append(roots, n)
		}
	}
	return roots
}

func (f *forest) node(tag namespace.Tag) *keyNode {
	f.seen[tag] = true
	n := &keyNode{Key: f.byKey[tag][0].Key, Holders: []monitor.Lock{}, Waiters: []waiterNode{}}
	for _, l := range f.byKey[tag] {
		if l.Granted {
			n.Holders = append(n.Holders, l)
			continue
		}
		n.Waiters = append(n.Waiters, waiterNode{Lock: l, Holds: f.heldBy(l.PID)})
	}
	return n
}

// heldBy returns the locks that a session holds, for which others wait.
func (f *forest) heldBy(pid uint32) []*keyNode {
	nodes := []*keyNode{}
	for _, tag := range f.order {
		holds := slices.ContainsFunc(f.byKey[tag], func(l monitor.Lock) bool { return l.Granted && l.PID == pid })
		if holds && !f.seen[tag] {
			nodes = append(nodes, f.node(tag))
		}
	}
	return nodes
}

// NewTree makes the command tree.
func NewTree(app *program.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tree",
		Short: "Show who waits for whom",
		Long: `Show the locks for which somebody waits: under each lock its holders and its queue,
and under a waiter the locks that it holds itself and others wait for. A cycle is a
deadlock, unless somebody in it waits with a timeout, as pglatch does.`,
		Args: cobra.NoArgs,
	}
	f := addFilter(app, cmd)
	_ = cmd.Flags().MarkHidden("waiting") // always so
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := locks(cmd.Context(), app)
		if err != nil {
			return err
		}
		f.apply(&s)
		roots := blockingTrees(s.Locks)
		document := struct {
			Trees  []*keyNode     `json:"trees"`
			Server monitor.Server `json:"server"`
		}{roots, s.Server}
		return app.Print(program.Output{Document: document, Lines: program.Lines(roots), Text: program.Text(func(w *bytes.Buffer) {
			for _, n := range roots {
				writeNode(app, w, n, "", "")
			}
		})})
	}
	return cmd
}

// writeNode writes a lock and what hangs on it: first stands before its first
// line, rest before the others.
func writeNode(app *program.App, w *bytes.Buffer, n *keyNode, first, rest string) {
	title := app.Paint(program.Bold, program.Printable(n.Key.Text))
	if n.Cycle {
		title += " " + app.Paint(program.Red, "(a cycle of waits)")
	}
	fmt.Fprintf(w, "%s%s\n", first, title)
	for _, l := range n.Holders {
		fmt.Fprintf(w, "%s● held by %s\n", rest, sessionText(l))
	}
	for i, waiter := range n.Waiters {
		branch, below := branches(i, len(n.Waiters))
		fmt.Fprintf(w, "%s%s%s %s\n", rest, branch, app.Paint(program.Yellow, "waits:"), sessionText(waiter.Lock))
		for j, child := range waiter.Holds {
			branch, deeper := branches(j, len(waiter.Holds))
			writeNode(app, w, child, rest+below+branch, rest+below+deeper)
		}
	}
}

// branches is what stands before item i of n, and before what hangs on it.
func branches(i, n int) (branch, below string) {
	if i == n-1 {
		return "└─ ", "   "
	}
	return "├─ ", "│  "
}
