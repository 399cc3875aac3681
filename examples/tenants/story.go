package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/postgres"
)

// A story is the state that the scenes share.
type story struct {
	*demokit.Narrator
	broken bool

	database *demokit.Database
	ledger   ledger
	backend  *postgres.Backend // to observe and drain from outside: the driver is not a node
	board    *board
	nodes    map[string]*node // running
	gone     []*node          // processes that have ended
}

// A node is a process that works for tenants.
type node = demokit.Process

// Title implements demokit.Story, as the methods below do.
func (s *story) Title() string {
	return fmt.Sprintf("pglatch: %d tenants, three nodes, one PostgreSQL: who owns what", tenants)
}

// Open starts the database.
func (s *story) Open(ctx context.Context) (err error) {
	s.board, s.nodes = newBoard(tenantNames()), map[string]*node{}
	if s.database, err = demokit.OpenDatabase(ctx, s.Narrator); err != nil {
		return err
	}
	s.ledger = ledger{s.database.Pool}
	if _, err := s.database.Pool.Exec(ctx, ledgerSchema); err != nil {
		return err
	}
	s.backend, err = openBackend(s.database.DSN)
	return err
}

// start starts a node.
func (s *story) start(ctx context.Context, name string) error {
	env := []string{nodeVariable + "=" + name, dsnVariable + "=" + s.database.DSN}
	if s.broken {
		env = append(env, brokenVariable+"=yes")
	}
	n, err := demokit.StartProcess(ctx, name, env...)
	if err != nil {
		return err
	}
	s.nodes[name] = n
	s.Say("node %s is process %d", s.name(name), n.PID())
	return nil
}

// name returns a node's name in the colour of its tenants.
func (s *story) name(node string) string { return s.Paint(colourOf(node), node) }

// forget removes a node whose process has ended.
func (s *story) forget(n *node) {
	delete(s.nodes, n.Name)
	s.gone = append(s.gone, n)
}

// taking returns the names of the nodes that take part.
func (s *story) taking() []string { return slices.Sorted(maps.Keys(s.nodes)) }

// show observes the owners and draws them.
func (s *story) show(ctx context.Context) error {
	seen, err := shards.Observe(ctx, s.backend)
	if err != nil {
		return err
	}
	s.board.see(seen)
	summary := s.board.summary(s.name)
	s.Live(summary, append(s.board.rows(min(60, s.Room()), s.Paint), summary)...)
	return nil
}

// pause is the time between two observations.
const pause = 100 * time.Millisecond

// await draws the owners until is reports true.
func (s *story) await(ctx context.Context, what string, is func() (bool, error)) error {
	return demokit.Await(ctx, what, func() (bool, error) {
		if err := s.show(ctx); err != nil {
			return false, err
		}
		if ok, err := is(); ok || err != nil {
			return ok, err
		}
		demokit.Pause(ctx, pause)
		return false, nil
	})
}

// settle waits until these nodes own all tenants, in equal parts to within one.
func (s *story) settle(ctx context.Context, nodes ...string) error {
	what := "all tenants to be spread over " + strings.Join(nodes, ", ")
	err := s.await(ctx, what, func() (bool, error) { return s.board.even(nodes...), nil })
	if err != nil {
		return fmt.Errorf("%w: %s", err, s.board.summary(s.name))
	}
	return nil
}

// Close ends everything that Open and the scenes started.
func (s *story) Close() (err error) {
	for _, n := range s.nodes {
		err = errors.Join(err, n.Kill())
	}
	if s.database != nil {
		err = errors.Join(err, s.database.Close())
	}
	return err
}

// Scenes returns one scene for each promise.
func (s *story) Scenes() []demokit.Scene {
	stopped := demokit.Scene{Title: "kill -STOP past the lease, and kill -CONT: C goes on writing", Play: s.stopped}
	judged := demokit.Scene{Title: "What the table shows", Play: s.judged}
	if s.broken {
		return []demokit.Scene{{Title: "Three nodes start, whose writes are not guarded", Play: s.started}, stopped, judged}
	}
	return []demokit.Scene{
		{Title: "Three nodes start, and share the tenants", Play: s.started},
		{Title: "kill -9 of a node: the others take over", Play: s.killed},
		{Title: "A node joins: it gets its part, and nothing else moves", Play: s.joined},
		{Title: "One of the two connections of a node is terminated", Play: s.terminated},
		{Title: "A node drains, for an operator who wants to look at it", Play: s.drained},
		stopped,
		{Title: "kill -TERM: a node leaves in good order", Play: s.left},
		judged,
	}
}

// Logs returns the ends of the nodes' logs.
func (s *story) Logs() string {
	return demokit.Logs(slices.AppendSeq(s.gone, maps.Values(s.nodes))...)
}

// Stay draws the owners until ctx ends.
func (s *story) Stay(ctx context.Context) {
	s.Say("kill what you like, and see; Ctrl-C ends it")
	for _, name := range s.taking() {
		s.Draw(fmt.Sprintf("kill -9 %d   node %s", s.nodes[name].PID(), s.name(name)))
	}
	for ctx.Err() == nil {
		if err := s.show(ctx); err != nil {
			s.Say("%v", err)
		}
		demokit.Pause(ctx, pause)
	}
	s.Printf("\n")
}

// terminate terminates the connection of a node that carries the most tenants.
func (s *story) terminate(ctx context.Context, node string) (pid int, err error) {
	err = s.database.Pool.QueryRow(ctx, `SELECT pid FROM pg_stat_activity JOIN pg_locks USING (pid)
		WHERE datname = current_database() AND application_name = $1 AND locktype = 'advisory' AND granted GROUP BY pid ORDER BY count(*) DESC LIMIT 1`, node).Scan(&pid)
	if err != nil {
		return 0, err
	}
	_, err = s.database.Pool.Exec(ctx, `SELECT pg_terminate_backend($1)`, pid)
	return pid, err
}
