package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pglatch/pglatch/examples/internal/demokit"
)

// started shows how tenants are spread.
func (s *story) started(ctx context.Context) error {
	at := time.Now()
	for _, name := range []string{"A", "B", "C"} {
		if err := s.start(ctx, name); err != nil {
			return err
		}
	}
	if err := s.settle(ctx, s.taking()...); err != nil {
		return err
	}
	took := time.Since(at)
	err := s.await(ctx, "each tenant's first row", func() (bool, error) {
		j, err := s.ledger.judge(ctx)
		return j.Tenants == tenants, err
	})
	if err != nil {
		return err
	}
	s.Say("all was owned %s after the first process began", demokit.Pretty(took))
	s.claimEven()
	return nil
}

// claimEven claims what settle waited for: an even spread.
func (s *story) claimEven() {
	s.Claim(s.board.even(s.taking()...), "%d nodes own all tenants, each its part to within one: %s", len(s.nodes), s.board.parts(s.name))
}

// A fault is something that takes tenants away from their node.
type fault struct {
	name string
	at   time.Time // by PostgreSQL's clock
	took []string
}

// strike records the moment of a fault. Unless the scene changes it, the fault takes all tenants of the node.
func (s *story) strike(ctx context.Context, node string) (f fault, err error) {
	f = fault{name: node, took: s.board.of(node)}
	f.at, err = s.database.Now(ctx)
	return f, err
}

// recovered waits until work continues for all tenants that a fault took, and claims that this took no longer than
// allowed.
func (s *story) recovered(ctx context.Context, f fault) error {
	var gaps []gap
	err := s.await(ctx, "work for the tenants of node "+f.name, func() (_ bool, err error) {
		gaps, err = s.ledger.gaps(ctx, f.at, f.took)
		again := map[string]bool{}
		for _, g := range gaps {
			again[g.Tenant] = true
		}
		return len(again) == len(f.took), err
	})
	if err != nil {
		return err
	}
	if len(gaps) == 0 {
		return fmt.Errorf("node %s had no tenants", f.name)
	}
	last := gaps[len(gaps)-1].Gap
	s.Claim(last <= bound, "the %d tenants of %s were worked for again: half of them after %s, the last after %s; %s were allowed",
		len(f.took), s.name(f.name), demokit.Pretty(gaps[len(gaps)/2].Gap), demokit.Pretty(last), demokit.Pretty(bound))
	return nil
}

// killed shows that ownership does not outlive the owner's process.
func (s *story) killed(ctx context.Context) error {
	f, err := s.strike(ctx, "B")
	if err != nil {
		return err
	}
	n := s.nodes[f.name]
	if err := n.Kill(); err != nil {
		return err
	}
	s.forget(n)
	s.Say("kill -9 %d: node %s, which had %d tenants", n.PID(), s.name(f.name), len(f.took))
	if err := s.settle(ctx, s.taking()...); err != nil {
		return err
	}
	if err := s.recovered(ctx, f); err != nil {
		return err
	}
	s.claimEven()
	return nil
}

// joined shows the effect of a new node on the others.
func (s *story) joined(ctx context.Context) error {
	f, err := s.strike(ctx, "D")
	if err != nil {
		return err
	}
	if err := s.start(ctx, f.name); err != nil {
		return err
	}
	if err := s.settle(ctx, s.taking()...); err != nil {
		return err
	}
	f.took = s.board.of(f.name)
	if err := s.recovered(ctx, f); err != nil {
		return err
	}
	s.claimEven()
	moved, err := s.ledger.gaps(ctx, f.at, s.board.names)
	if err != nil {
		return err
	}
	part := (tenants + len(s.nodes) - 1) / len(s.nodes)
	s.Claim(len(moved) <= part, "%d tenants moved, all to the node that joined: its part is %d", len(moved), part)
	return nil
}

// terminated shows that half of a node's tenants do not depend on any one connection.
func (s *story) terminated(ctx context.Context) error {
	f, err := s.strike(ctx, "A")
	if err != nil {
		return err
	}
	n := s.nodes[f.name]
	size := n.Log.Size()
	pid, err := s.terminate(ctx, f.name)
	if err != nil {
		return err
	}
	s.Say("pg_terminate_backend(%d): one of two connections of node %s, which has %d tenants", pid, s.name(f.name), len(f.took))
	all := f.took
	err = s.await(ctx, "the loss", func() (bool, error) {
		gaps, err := s.ledger.gaps(ctx, f.at, all)
		f.took = nil
		for _, g := range gaps {
			f.took = append(f.took, g.Tenant)
		}
		slices.Sort(f.took)
		f.took = slices.Compact(f.took)
		return len(gaps) > 0 && len(gaps) == count(n, size, lost) && s.board.even(s.taking()...), err
	})
	if err != nil {
		return err
	}
	s.Claim(len(f.took) < len(all), "the %d tenants that the other connection carries stay in their terms", len(all)-len(f.took))
	return s.recovered(ctx, f)
}

// drained shows a node that gives up its tenants and gets none.
func (s *story) drained(ctx context.Context) error {
	f, err := s.strike(ctx, "D")
	if err != nil {
		return err
	}
	if err := s.backend.Drain(ctx, f.name, true); err != nil {
		return err
	}
	s.Say("node %s drains; its process works on", s.name(f.name))
	if err := s.settle(ctx, "A", "C"); err != nil {
		return err
	}
	if err := s.recovered(ctx, f); err != nil {
		return err
	}
	s.Claim(s.board.counts[f.name] == 0, "node %s owns nothing", s.name(f.name))
	if err := s.backend.Drain(ctx, f.name, false); err != nil {
		return err
	}
	s.Say("the drain ends")
	if err := s.settle(ctx, s.taking()...); err != nil {
		return err
	}
	s.claimEven()
	return nil
}

// stopped shows what only a guard can do: a stopped node cannot know that time has passed.
func (s *story) stopped(ctx context.Context) error {
	f, err := s.strike(ctx, "C")
	if err != nil {
		return err
	}
	n := s.nodes[f.name]
	size := n.Log.Size()
	if err := n.Stop(); err != nil {
		return err
	}
	s.Say("kill -STOP %d: node %s, which has %d tenants", n.PID(), s.name(f.name), len(f.took))
	others := slices.DeleteFunc(s.taking(), func(name string) bool { return name == f.name })
	if err := s.settle(ctx, others...); err != nil {
		return err
	}
	if err := s.recovered(ctx, f); err != nil {
		return err
	}
	if err := n.Resume(); err != nil {
		return err
	}
	s.Say("kill -CONT %d: it goes on, and writes", n.PID())
	if s.broken {
		return s.await(ctx, "the late writes", func() (bool, error) {
			j, err := s.ledger.judge(ctx)
			return j.Stale > 0, err
		})
	}
	late := 0
	err = s.await(ctx, "the late writes", func() (bool, error) {
		late = count(n, size, refused)
		return late > 0 && s.board.even(s.taking()...), nil
	})
	if err != nil {
		return err
	}
	s.Claim(late > 0, "its guards refused %d late writes, and it has its part again", late)
	s.claimEven()
	return nil
}

// left shows a clean stop.
func (s *story) left(ctx context.Context) error {
	f, err := s.strike(ctx, "A")
	if err != nil {
		return err
	}
	n := s.nodes[f.name]
	s.Say("kill -TERM %d: node %s, which has %d tenants", n.PID(), s.name(f.name), len(f.took))
	ended := make(chan error, 1)
	go func() { ended <- n.Terminate() }()
	err = s.await(ctx, "the end of its process", func() (bool, error) {
		select {
		case err := <-ended:
			return true, err
		default:
			return false, nil
		}
	})
	if err != nil {
		return err
	}
	s.forget(n)
	if err := s.settle(ctx, s.taking()...); err != nil {
		return err
	}
	if err := s.recovered(ctx, f); err != nil {
		return err
	}
	s.claimEven()
	return nil
}

// count returns how often a node has logged a message.
func count(n *node, size int, text string) int {
	return len(n.Log.Entries(size, demokit.Message(text)))
}

// judged claims the results from the table alone.
func (s *story) judged(ctx context.Context) error {
	j, err := s.ledger.judge(ctx)
	if err != nil {
		return err
	}
	s.Say("%d rows of %d tenants, in %d terms; %d moves", j.Rows, j.Tenants, j.Terms, s.board.moves)
	s.Claim(j.Shared == 0, "%s", counted("in each term of a tenant one node wrote", j.Shared))
	s.Claim(j.Stale == 0, "%s", counted("no row of an old term came after one of a new term", j.Stale))
	s.Claim(j.Fallen == 0, "%s", counted("each term of a tenant is greater than those before it", j.Fallen))
	return nil
}

// counted appends the number of violations of a claim.
func counted(text string, wrong int) string {
	if wrong == 0 {
		return text
	}
	return fmt.Sprintf("%s (%d did)", text, wrong)
}
