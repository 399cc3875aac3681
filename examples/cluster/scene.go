package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pglatch/pglatch/examples/internal/demokit"
)

// live waits for a second and reports what happened in it.
func (s *story) live(ctx context.Context) {
	from := time.Now()
	demokit.Pause(ctx, time.Second)
	if ctx.Err() != nil {
		return
	}
	visits := s.witness.since(from)
	_, inside := s.witness.count()
	twice, _ := s.witness.wrong()
	s.Say("%4d visits in 1 s   %2d clients at A, %2d at B   %2d inside, twice %d",
		len(visits), len(s.at(s.servers[0], false)), len(s.at(s.servers[1], false)), inside, len(twice))
}

// awaitVisits waits for this many further visits.
func (s *story) awaitVisits(ctx context.Context, more int) error {
	began, _ := s.witness.count()
	return demokit.Await(ctx, "visits", func() (bool, error) {
		select {
		case err := <-s.failed:
			return false, err
		default:
		}
		now, _ := s.witness.count()
		return now >= began+more, nil
	})
}

// steady shows the normal state, before any fault.
func (s *story) steady(ctx context.Context) error {
	if err := s.admit(ctx); err != nil {
		return err
	}
	s.Say("%d clients share %d locks, %d have one each, %d more have one each and stay inside for %s; half of them begin at A, half at B",
		sharing, sharedLocks, alone, staying, demokit.Pretty(stay))
	for range 3 {
		s.live(ctx)
	}
	if s.broken {
		return demokit.Await(ctx, "two clients inside", func() (bool, error) {
			twice, _ := s.witness.wrong()
			return len(twice) > 0, nil
		})
	}
	var everybody []int
	for _, c := range s.clients {
		everybody = append(everybody, c.number)
	}
	err := demokit.Await(ctx, "every client to be inside once", func() (bool, error) {
		return firsts(time.Now(), s.witness.since(time.Time{}), everybody) != nil, nil
	})
	if err != nil {
		return err
	}
	s.Claim(true, "each of the %d clients was inside: both servers grant, and waiters of both have their turn", len(everybody))
	s.claimSafe("nobody was inside twice, and tokens rose")
	return nil
}

// claimSafe claims that the witness has seen no violation.
func (s *story) claimSafe(text string) {
	twice, fell := s.witness.wrong()
	s.Claim(len(twice) == 0 && len(fell) == 0, "%s", text)
}

// leaderKilled shows for how long nobody is served after the etcd leader's death.
func (s *story) leaderKilled(ctx context.Context) error {
	old, err := s.awaitLeader(ctx)
	if err != nil {
		return err
	}
	pid, at := old.PID(), time.Now()
	if err := old.Kill(); err != nil {
		return err
	}
	s.Say("kill -9 %d: etcd %s, which led", pid, s.member(old))
	heir, err := s.awaitLeader(ctx)
	if err != nil {
		return err
	}
	s.Say("etcd %s leads", s.member(heir))
	if err := s.awaitVisits(ctx, 100); err != nil {
		return err
	}
	s.showGap(at)
	s.live(ctx)
	s.Claim(true, "with two of three members, clients are served")
	if err := old.Start(); err != nil {
		return err
	}
	revision, err := s.awaitCaughtUp(ctx, old, heir)
	if err != nil {
		return err
	}
	s.Say("etcd %s is back as process %d", s.member(old), old.PID())
	s.Claim(true, "it has all %d revisions of the others", revision)
	s.claimSafe("nobody was inside twice, and tokens rose")
	return nil
}

// showGap prints for how long nobody was served after a kill, and draws it.
func (s *story) showGap(at time.Time) {
	visits := s.witness.since(at)
	s.Say("%s", s.Paint(demokit.Bold, "nobody was served for "+demokit.Pretty(gap(at, visits))))
	from := at.Add(-500 * time.Millisecond)
	bars, below := chart(from, time.Now(), at, s.witness.since(from))
	s.Draw(s.Paint(demokit.Cyan, bars))
	s.Draw(s.Paint(demokit.Faint, below))
}

// serverKilled kills the server that has more clients.
func (s *story) serverKilled(ctx context.Context) error {
	dead, heir := s.servers[0], s.servers[1]
	if len(s.at(heir, true)) > len(s.at(dead, true)) {
		dead, heir = heir, dead
	}
	s.Say("%d clients are at %s, %d at %s", len(s.at(dead, false)), s.name(dead), len(s.at(heir, false)), s.name(heir))
	own, at := s.at(dead, true), time.Now()
	if err := dead.Kill(); err != nil {
		return err
	}
	s.Say("kill -9 %d: lock server %s", dead.PID(), s.name(dead))
	var waits []time.Duration
	err := demokit.Await(ctx, "its clients", func() (bool, error) {
		waits = firsts(at, s.witness.since(at), own)
		return len(waits) == len(own), nil
	})
	if err != nil {
		return err
	}
	if err := s.awaitVisits(ctx, 100); err != nil {
		return err
	}
	s.showGap(at)
	if len(waits) > 0 {
		slices.Sort(waits)
		s.Say("of its clients with a lock of their own %d were inside again: the first after %s, half of them after %s, the last after %s",
			len(waits), demokit.Pretty(waits[0]), demokit.Pretty(waits[len(waits)/2]), demokit.Pretty(waits[len(waits)-1]))
	}
	s.live(ctx)
	err = demokit.Await(ctx, "all clients to be at "+heir.Name, func() (bool, error) { return len(s.at(dead, false)) == 0, nil })
	if err != nil {
		return err
	}
	s.Claim(true, "all %d clients are at %s, those too who only renew", len(s.clients), heir.Name)
	if err := s.serve(ctx, dead, dead.Name); err != nil {
		return err
	}
	s.Say("lock server %s is back as process %d", s.name(dead), dead.PID())
	s.claimSafe("nobody was inside twice, and tokens rose")
	return nil
}

func (s *story) name(x *server) string { return s.Paint(demokit.Cyan, x.Name) }

// judged stops the clients and reports the result.
func (s *story) judged(context.Context) error {
	s.leave()
	s.working.Wait()
	total, inside := s.witness.count()
	lost := int64(0)
	for _, c := range s.clients {
		lost += c.lost.Load()
	}
	s.Say("%d visits by %d clients to %d locks; %d leases ended while their holder was inside, who left then", total, len(s.clients), sharedLocks+alone+staying, lost)
	twice, fell := s.witness.wrong()
	for _, line := range append(slices.Clone(twice[:min(3, len(twice))]), fell[:min(3, len(fell))]...) {
		s.Draw(s.Paint(demokit.Red, line))
	}
	s.Claim(len(twice) == 0, "%s", counted("nobody was inside a lock in which somebody else was", twice))
	s.Claim(len(fell) == 0, "%s", counted("each token was greater than the last one of its lock", fell))
	s.Claim(inside == 0, "all came out")
	return nil
}

// counted appends the number of violations of a claim.
func counted(text string, found []string) string {
	if len(found) == 0 {
		return text
	}
	return fmt.Sprintf("%s (seen %d times)", text, len(found))
}
