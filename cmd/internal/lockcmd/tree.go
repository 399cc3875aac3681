package lockcmd

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

// A keyNode is a lock with waiters.
type keyNode struct {
	Key     monitor.Key    `json:"key"`
	Holders []monitor.Lock `json:"holders"`
	Waiters []waiterNode   `json:"waiters"` // in the order of the queue
	// Cycle is true when the wait for this lock is part of, or behind, a cycle of waits.
	Cycle bool `json:"cycle,omitempty"`

	tag namespace.Tag
}

// A waiterNode is a waiting session, and everything that waits because of it.
type waiterNode struct {
	Lock  monitor.Lock `json:"lock"`
	Holds []*keyNode   `json:"holds"` // other locks with waiters
}

// A forest builds keyNodes. Each lock appears once.
type forest struct {
	byKey map[namespace.Tag][]monitor.Lock
	order []namespace.Tag // of the locks with waiters
	seen  map[namespace.Tag]bool
}

// blockingTrees returns the locks with waiters. The holders of a root lock wait for nothing. Below
// a waiter are the locks that it holds.
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
	for _, tag := range f.order { // a lock under no root depends on itself
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
	n := &keyNode{tag: tag, Key: f.byKey[tag][0].Key, Holders: []monitor.Lock{}, Waiters: []waiterNode{}}
	for _, l := range f.byKey[tag] {
		if l.Granted {
			n.Holders = append(n.Holders, l)
			continue
		}
		n.Waiters = append(n.Waiters, waiterNode{Lock: l, Holds: f.heldBy(l.PID)})
	}
	return n
}

// heldBy returns the locks with waiters that a session holds.
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

// NewTree returns the command tree.
func NewTree(app *program.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tree",
		Short: "Show who waits for whom",
		Long: `Show the locks that have waiters: below each lock its holders and its queue, and below
each waiter the locks that it holds and others wait for. A cycle is a deadlock, unless one
of its waiters has a timeout, as waiters of pglatch do.

A program that uses pglatch waits on a different session from the one that holds its lock,
so PostgreSQL shows no cycle. If several keys have waiters, tree watches for two seconds. It
then names the deadlocks that the processes' answers show, as "pglatch verdicts" does.`,
		Args: cobra.NoArgs,
	}
	f := addFilter(app, cmd, overview.ByKey)
	_ = cmd.Flags().MarkHidden("waiting") // it is always on
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		v, err := lookup.Once(cmd.Context(), app)
		if err == nil && cyclic(v) {
			v, err = lookup.Observed(cmd.Context(), app, 0)
		}
		if err != nil {
			return err
		}
		v.TellHidden(app)
		deadlocks := slices.DeleteFunc(v.Verdicts, func(d monitor.Verdict) bool { return d.Name != "deadlock" })
		t := treeText{app: app, rows: map[namespace.Tag]*overview.Row{}}
		for _, r := range f.apply(&v, lookup.Selection{}) {
			for _, tag := range r.Tags {
				t.rows[tag] = r
			}
		}
		roots := blockingTrees(v.Locks)
		document := struct {
			Trees     []*keyNode        `json:"trees"`
			Deadlocks []monitor.Verdict `json:"deadlocks,omitempty"`
			Server    monitor.Server    `json:"server"`
		}{roots, deadlocks, v.Server}
		return errors.Join(app.Print(program.Output{Document: document, Lines: program.Lines(roots), Text: func(w *bytes.Buffer) {
			for _, n := range roots {
				t.write(w, n, "", "")
			}
			for _, d := range deadlocks {
				writeVerdict(app, w, d)
			}
		}}), v.Primary())
	}
	return cmd
}

// cyclic reports whether a cycle of waits is possible: two keys have waiters.
func cyclic(v lookup.View) bool {
	waited := 0
	for _, r := range v.Rows() {
		if len(r.Waiters) > 0 {
			waited++
		}
	}
	return waited > 1
}

// A treeText writes trees, with the processes' answers about the sessions.
type treeText struct {
	app  *program.App
	rows map[namespace.Tag]*overview.Row
}

// write writes a lock and the tree below it. first precedes its first line, rest the others.
func (t treeText) write(w *bytes.Buffer, n *keyNode, first, rest string) {
	text := n.Key.Text
	if r := t.rows[n.tag]; r != nil && r.Tag == n.tag {
		text = r.Text()
	}
	title := t.app.Paint(program.Bold, program.Printable(text))
	if n.Cycle {
		title += " " + t.app.Paint(program.Red, "(a cycle of waits)")
	}
	fmt.Fprintf(w, "%s%s\n", first, title)
	for _, l := range n.Holders {
		fmt.Fprintf(w, "%s● held by %s\n", rest, t.session(l))
	}
	for i, waiter := range n.Waiters {
		branch, below := branches(i, len(n.Waiters))
		fmt.Fprintf(w, "%s%s%s %s\n", rest, branch, t.app.Paint(program.Yellow, "waits:"), t.session(waiter.Lock))
		for j, child := range waiter.Holds {
			branch, deeper := branches(j, len(waiter.Holds))
			t.write(w, child, rest+below+branch, rest+below+deeper)
		}
	}
}

func (t treeText) session(l monitor.Lock) string {
	p := overview.PartyOf(l)
	if r := t.rows[l.Tag]; r != nil {
		if told, ok := r.Session(l.PID, l.Granted); ok {
			p = told
		}
	}
	return program.Printable(p.String())
}

// branches returns the prefix of item i of n, and that of the tree below it.
func branches(i, n int) (branch, below string) {
	if i == n-1 {
		return "└─ ", "   "
	}
	return "├─ ", "│  "
}
