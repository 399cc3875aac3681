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
	broken  bool
	backend *postgres.Backend           // to observe and drain from outside: the demo is not a node
	board   board                       // as last observed
	nodes   map[string]*demokit.Process // running
}

// tell starts the database.
func tell(d *demokit.Demo, broken bool) demokit.Story {
	demokit.Check(d.OpenDatabase())
	d.Exec(ledgerSchema)
	s := &demo{d, broken, demokit.Must(openBackend(d.DSN)), nil, map[string]*demokit.Process{}}
	stopped := demokit.Scene{Title: "kill -STOP past the lease, and kill -CONT: C goes on writing", Play: s.stopped}
	judged := demokit.Scene{Title: "What the table shows", Play: s.judged}
	scenes := []demokit.Scene{
		{Title: "Three nodes start, and share the tenants", Play: s.started},
		{Title: "kill -9 of a node: the others take over", Play: s.killed},
		{Title: "A node joins: it gets its part, and nothing else moves", Play: s.joined},
		{Title: "One of the two connections of a node is terminated", Play: s.terminated},
		{Title: "A node drains, for an operator who wants to look at it", Play: s.drained},
		stopped,
		{Title: "kill -TERM: a node leaves in good order", Play: s.left},
		judged,
	}
	if broken {
		scenes = []demokit.Scene{{Title: "Three nodes start, whose writes are not guarded", Play: s.started}, stopped, judged}
	}
	return demokit.Story{Scenes: scenes, Stay: s.stay}
}

func (s *demo) start(name string) {
	var env []string
	if s.broken {
		env = append(env, brokenVariable+"=yes")
	}
	s.nodes[name] = s.Start(name, env...)
}

// taking returns the names of the nodes that take part.
func (s *demo) taking() []string { return slices.Sorted(maps.Keys(s.nodes)) }

// show observes the owners and prints how many tenants each has.
func (s *demo) show(ctx context.Context) {
	s.board = newBoard(demokit.Must(shards.Observe(ctx, s.backend)))
	s.Status(s.board.String())
}

// await shows the owners until is reports true.
func (s *demo) await(ctx context.Context, what string, is func() bool) {
	s.Await(what, func() bool {
		s.show(ctx)
		if is() {
			return true
		}
		demokit.Pause(ctx, 100*time.Millisecond)
		return false
	})
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
		demokit.Pause(ctx, 100*time.Millisecond)
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
		s.start(name)
	}
	s.settled(ctx)
	s.await(ctx, "each tenant's first row", func() bool { return len(readTerms(s.Database).Latest()) == tenants })
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
	s.start("D")
	s.settled(ctx)
	s.recovered(ctx, &fault{Process: s.nodes["D"], at: at, took: s.board["D"]})
	moved, part := gaps(s.Database, at, tenantNames()), (tenants+len(s.nodes)-1)/len(s.nodes)
	s.Claim(len(moved) <= part, "%d tenants moved, all to the node that joined: its part is %d", len(moved), part)
}

// terminated shows that half of a node's tenants do not depend on any one connection.
func (s *demo) terminated(ctx context.Context) {
	f := s.strike("A", "pg_terminate_backend of one of two connections")
	pid := dbtest.Ask[int](s.Database, `SELECT pid FROM pg_stat_activity JOIN pg_locks USING (pid)
		WHERE datname = current_database() AND application_name = $1 AND locktype = 'advisory' AND granted GROUP BY pid ORDER BY count(*) DESC LIMIT 1`, f.Name)
	s.Exec(`SELECT pg_terminate_backend($1)`, pid)
	all := f.took
	s.await(ctx, "the loss", func() bool {
		found := gaps(s.Database, f.at, all)
		f.took = tenantsOf(found)
		return len(found) > 0 && len(found) == len(f.Entries(f.size, lost)) && s.board.even(tenants, s.taking()...)
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
	if s.broken {
		s.await(ctx, "the late writes", func() bool { late, _ := readTerms(s.Database).Drain(); return len(late) > 0 })
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
	terms := readTerms(s.Database)
	all, rows, _ := terms.Total()
	s.Say("%d rows of %d tenants, in %d terms", rows, len(terms.Latest()), all)
	late, shared := terms.Drain()
	s.Claim(len(shared) == 0, "in each term of a tenant one node wrote%s", but(len(shared)))
	s.Claim(len(late) == 0, "each term is greater than those before it, and no row of an old term came after one of a new term%s", but(len(late)))
}

// but is the number of violations of a claim.
func but(wrong int) string {
	if wrong == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d did)", wrong)
}
