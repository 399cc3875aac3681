package cli

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

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

func newTree(app *App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tree",
		Short: "Show who waits for whom",
		Long: `Show the locks for which somebody waits: under each lock its holders and its queue,
and under a waiter the locks that it holds itself and others wait for. A cycle is a
deadlock, unless somebody in it waits with a timeout, as pglatch does.`,
		Args: cobra.NoArgs,
	}
	f := app.addFilter(cmd)
	_ = cmd.Flags().MarkHidden("waiting") // always so
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := app.locks(cmd.Context())
		if err != nil {
			return err
		}
		f.apply(&s)
		roots := blockingTrees(s.Locks)
		document := struct {
			Trees  []*keyNode     `json:"trees"`
			Server monitor.Server `json:"server"`
		}{roots, s.Server}
		return app.Print(Output{Document: document, Lines: lines(roots), Text: text(func(w *bytes.Buffer) {
			for _, n := range roots {
				app.writeNode(w, n, "", "")
			}
		})})
	}
	return cmd
}

// writeNode writes a lock and what hangs on it: first stands before its first
// line, rest before the others.
func (a *App) writeNode(w *bytes.Buffer, n *keyNode, first, rest string) {
	title := a.paint(bold, printable(n.Key.Text))
	if n.Cycle {
		title += " " + a.paint(red, "(a cycle of waits)")
	}
	fmt.Fprintf(w, "%s%s\n", first, title)
	for _, l := range n.Holders {
		fmt.Fprintf(w, "%s● held by %s\n", rest, sessionText(l))
	}
	for i, waiter := range n.Waiters {
		branch, below := branches(i, len(n.Waiters))
		fmt.Fprintf(w, "%s%s%s %s\n", rest, branch, a.paint(yellow, "waits:"), sessionText(waiter.Lock))
		for j, child := range waiter.Holds {
			branch, deeper := branches(j, len(waiter.Holds))
			a.writeNode(w, child, rest+below+branch, rest+below+deeper)
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
