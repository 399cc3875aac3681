package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/postgres"
)

// A demo is the state that the scenes share.
type demo struct {
	*demokit.Demo
	backend *postgres.Backend           // to observe and drain from outside: the demo is not a node
	board   board                       // as last observed
	nodes   map[string]*demokit.Process // running
}

func tell(_ context.Context, d *demokit.Demo) demokit.Story {
	demokit.Check(d.OpenDatabase())
	d.Exec(ledgerSchema)
	s := &demo{d, demokit.Must(openBackend(d.DSN)), nil, map[string]*demokit.Process{}}
	scenes := []demokit.Scene{
		{Title: "Three nodes start, and share the tenants", Play: s.started},
		{Title: "kill -9 of a node: the others take over", Play: s.killed},
		{Title: "A node joins: it gets its part, and nothing else moves", Play: s.joined},
		{Title: "One of the two connections of a node is terminated", Play: s.terminated},
		{Title: "A node drains, for an operator who wants to look at it", Play: s.drained},
		{Title: "kill -STOP past the lease, and kill -CONT: C goes on writing", Play: s.stopped},
		{Title: "kill -TERM: a node leaves in good order", Play: s.left},
		{Title: "What the table shows", Play: s.judged},
	}
	if s.Broken {
		scenes[0].Title = "Three nodes start, whose writes are not guarded"
		scenes = []demokit.Scene{scenes[0], scenes[5], scenes[7]}
	}
	return demokit.Story{Scenes: scenes, Stay: s.stay}
}

// taking returns the names of the nodes that take part.
func (s *demo) taking() []string { return slices.Sorted(maps.Keys(s.nodes)) }

// show observes the owners, prints how many tenants each has, and pauses.
func (s *demo) show(ctx context.Context) {
	s.board = newBoard(demokit.Must(shards.Observe(ctx, s.backend)))
	s.Status(s.board.String())
	demokit.Pause(ctx, 100*time.Millisecond)
}

// await shows the owners until is reports true.
func (s *demo) await(ctx context.Context, what string, is func() bool) {
	s.Await(what, func() bool { s.show(ctx); return is() })
}

// settle waits until these nodes own all tenants, in equal parts to within one.
func (s *demo) settle(ctx context.Context, nodes ...string) {
	s.await(ctx, "all tenants to be spread over "+strings.Join(nodes, ", "), func() bool { return s.board.even(tenants, nodes...) })
}

// settled claims an even spread over all nodes.
func (s *demo) settled(ctx context.Context) {
	s.settle(ctx, s.taking()...)
	s.Claim(s.board.even(tenants, s.taking()...), "%d nodes own all tenants, each its part to within one: %s", len(s.nodes), s.board)
}

// stay shows the owners until ctx ends.
func (s *demo) stay(ctx context.Context) {
	s.Say("kill what you like, and see; Ctrl-C ends it")
	for ctx.Err() == nil {
		s.show(ctx)
	}
}

// A fault takes tenants away from their node.
type fault struct {
	*demokit.Process
	at   time.Time // by PostgreSQL's clock
	size int       // of the node's log
	took []string
}

// strike notes the moment of a fault. Unless the scene changes it, the fault takes all tenants of the node.
func (s *demo) strike(node, what string) *fault {
	n := s.nodes[node]
	f := &fault{n, s.Now(), n.Size(), s.board[node]}
	s.Say("%s: node %s, which has %d tenants", what, node, len(f.took))
	return f
}

// recovered waits until work continues for all tenants that a fault took, and claims that this took no longer than
// allowed.
func (s *demo) recovered(ctx context.Context, f *fault) {
	var found []gap
	s.await(ctx, "work for the tenants of node "+f.Name, func() bool {
		found = gaps(s.Database, f.at, f.took)
		return len(tenantsOf(found)) == len(f.took) && len(found) > 0
	})
	last := found[len(found)-1].Gap
	s.Claim(last <= bound, "the %d tenants of %s were worked for again: half of them after %s, the last after %s; %s were allowed",
		len(f.took), f.Name, demokit.Pretty(found[len(found)/2].Gap), demokit.Pretty(last), demokit.Pretty(bound))
}

// started shows how tenants are spread.
func (s *demo) started(ctx context.Context) {
	for _, name := range []string{"A", "B", "C"} {
		s.nodes[name] = s.Start(name)
	}
	s.settled(ctx)
	s.await(ctx, "each tenant's first row", func() bool { terms, _ := readTerms(s.Database); return len(terms.Latest()) == tenants })
}

// killed shows that ownership does not outlive the owner's process.
func (s *demo) killed(ctx context.Context) {
	f := s.strike("B", "kill -9")
	f.Kill()
	delete(s.nodes, f.Name)
	s.settled(ctx)
	s.recovered(ctx, f)
}

// joined shows the effect of a new node on the others.
func (s *demo) joined(ctx context.Context) {
	at := s.Now()
	s.nodes["D"] = s.Start("D")
	s.settled(ctx)
	s.recovered(ctx, &fault{Process: s.nodes["D"], at: at, took: s.board["D"]})
	moved, part := gaps(s.Database, at, tenantNames()), (tenants+len(s.nodes)-1)/len(s.nodes)
	s.Claim(len(moved) <= part, "%d tenants moved, all to the node that joined: its part is %d", len(moved), part)
}

// terminated shows that half of a node's tenants do not depend on any one connection.
func (s *demo) terminated(ctx context.Context) {
	f := s.strike("A", "pg_terminate_backend of one of two connections")
	pid := dbtest.Ask[int](s, `SELECT pid FROM pg_stat_activity JOIN pg_locks USING (pid)
		WHERE datname = current_database() AND application_name = $1 AND locktype = 'advisory' AND granted GROUP BY pid ORDER BY count(*) DESC LIMIT 1`, f.Name)
	s.Exec(`SELECT pg_terminate_backend($1)`, pid)
	all := f.took
	s.await(ctx, "the loss", func() bool {
		f.took = tenantsOf(gaps(s.Database, f.at, all)) // a tenant that moves on to balance the nodes has two gaps
		return len(f.took) > 0 && len(f.took) == len(f.Entries(f.size, lost)) && s.board.even(tenants, s.taking()...)
	})
	s.Claim(len(f.took) < len(all), "the %d tenants that the other connection carries stay in their terms", len(all)-len(f.took))
	s.recovered(ctx, f)
}

// drained shows a node that gives up its tenants and gets none.
func (s *demo) drained(ctx context.Context) {
	f := s.strike("D", "pglatch shards drain, while its process works on")
	demokit.Check(s.backend.Drain(ctx, f.Name, true))
	s.settle(ctx, "A", "C")
	s.recovered(ctx, f)
	s.Claim(len(s.board[f.Name]) == 0, "node %s owns nothing", f.Name)
	demokit.Check(s.backend.Drain(ctx, f.Name, false))
	s.Say("the drain ends")
	s.settled(ctx)
}

// stopped shows what only a guard can do: a stopped node cannot know that time has passed.
func (s *demo) stopped(ctx context.Context) {
	f := s.strike("C", "kill -STOP")
	f.Signal(syscall.SIGSTOP)
	s.settle(ctx, slices.DeleteFunc(s.taking(), func(name string) bool { return name == f.Name })...)
	s.recovered(ctx, f)
	f.Signal(syscall.SIGCONT)
	s.Say("kill -CONT: it goes on, and writes")
	if s.Broken {
		s.await(ctx, "the late writes", func() bool {
			terms, _ := readTerms(s.Database)
			late, _ := terms.Drain()
			return len(late) > 0
		})
		return
	}
	f.Await(f.size, refused)
	s.settled(ctx)
	late := len(f.Entries(f.size, refused))
	s.Claim(late > 0, "its guards refused %d late writes, and it has its part again", late)
}

// left shows a clean stop.
func (s *demo) left(ctx context.Context) {
	f := s.strike("A", "kill -TERM")
	f.Terminate()
	delete(s.nodes, f.Name)
	s.settled(ctx)
	s.recovered(ctx, f)
}

// judged claims the results from the table alone.
func (s *demo) judged(context.Context) {
	terms, _ := readTerms(s.Database)
	all, rows, _ := terms.Total()
	s.Say("%d rows of %d tenants, in %d terms", rows, len(terms.Latest()), all)
	late, shared := terms.Drain()
	s.ClaimNone(len(shared), "in each term of a tenant one node wrote")
	s.ClaimNone(len(late), "each term is greater than those before it, and no row of an old term came after one of a new term")
}

// A board has the tenants of each node, and of "" those that nobody has.
type board map[string][]string

// newBoard returns the tenants of the nodes that take part.
func newBoard(g shards.Group) board {
	b := board{}
	for _, m := range g.Members {
		if !m.Away {
			b[m.Identity] = nil
		}
	}
	for _, s := range g.Shards {
		b[s.Owner] = append(b[s.Owner], s.Name)
	}
	return b
}

// even reports whether these nodes own all tenants, of which there are so many, in equal parts to within one.
func (b board) even(all int, nodes ...string) bool {
	least, most := all, 0
	for _, n := range nodes {
		part := len(b[n])
		least, most, all = min(least, part), max(most, part), all-part
	}
	return all == 0 && most-least <= 1
}

func (b board) String() (parts string) {
	for _, node := range slices.Sorted(maps.Keys(b)) {
		if node != "" {
			parts += fmt.Sprintf("%s %d  ", node, len(b[node]))
		}
	}
	return fmt.Sprintf("%snobody %d", parts, len(b[""]))
}
