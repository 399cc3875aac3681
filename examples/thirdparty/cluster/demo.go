package main

import (
	"context"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
)

// A demo is the state that the scenes share.
type demo struct {
	*demokit.Demo
	members []*etcdtest.Process
	servers [2]*demokit.Process
	at      [2]string // their addresses: after a kill, another process continues a server at the same one
	clients []*client
	witness *witness
	leave   context.CancelFunc // stops the clients
	working errgroup.Group
}

// tell starts the processes.
func tell(ctx context.Context, d *demokit.Demo) demokit.Story {
	s := &demo{Demo: d, witness: newWitness(), leave: func() {}}
	dir := demokit.Must(os.MkdirTemp("", "pglatch-demo-"))
	s.Defer(func() error { return os.RemoveAll(dir) })
	s.members = etcdtest.StartCluster(s, dir, 3)
	leader := s.awaitLeader(ctx)
	for _, m := range s.members {
		s.Say("etcd %s is process %d at %s, and leads: %t", m.Member.Name, m.PID(), m.Address, m == leader)
	}
	for i := range s.servers {
		s.at[i] = etcdtest.FreeAddress(s)
		s.serve(i)
	}
	s.Defer(func() error { s.leave(); return s.working.Wait() })
	if s.Broken {
		return demokit.Story{Scenes: []demokit.Scene{
			{Title: "40 clients work, and those of shared locks ignore that their leases end", Play: s.steady},
			{Title: "The clients leave: what the witness has seen", Play: s.judged},
		}}
	}
	return demokit.Story{Stay: s.stay, Scenes: []demokit.Scene{
		{Title: "40 clients work through both lock servers", Play: s.steady},
		{Title: "kill -9 of the etcd leader: the other members elect one, and it comes back", Play: s.leaderKilled},
		{Title: "kill -9 of a lock server: its clients go on with the other one", Play: s.serverKilled(0, 1)},
		{Title: "kill -9 of that other one: all go to the server that came back", Play: s.serverKilled(1, 0)},
		{Title: "The clients leave: what the witness has seen", Play: s.judged},
	}}
}

// serve starts a lock server, or restarts it after a kill.
func (s *demo) serve(i int) {
	args := []string{s.at[i]}
	for _, m := range s.members {
		args = append(args, m.Address)
	}
	s.servers[i] = s.Start([]string{"A", "B"}[i], args...)
}

// admit starts the clients, one half with A as its first server, the other with B.
func (s *demo) admit(ctx context.Context) {
	urls := []string{s.servers[0].URL, s.servers[1].URL}
	ctx, s.leave = context.WithCancel(ctx)
	s.clients = nil
	for i := range all {
		first := i / sharedLocks % 2 // so that each shared lock has clients at both servers
		c := demokit.Must(newClient(i, []string{urls[first], urls[1-first]}, s.witness, s.Broken))
		s.clients = append(s.clients, c)
		s.working.Go(func() error { return c.work(ctx) })
	}
}

// status returns the status of one member, or nil if it does not answer.
func status(ctx context.Context, m *etcdtest.Process) *clientv3.StatusResponse {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{m.Address}, Logger: zap.NewNop()})
	if err != nil {
		return nil
	}
	defer client.Close() //nolint:errcheck // the status has been read
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	answer, _ := client.Status(ctx, m.Address)
	return answer
}

// awaitLeader returns the leading member as soon as it says itself that it leads.
func (s *demo) awaitLeader(ctx context.Context) (leader *etcdtest.Process) {
	s.Await("a leader of etcd", func() bool {
		for _, m := range s.members {
			if a := status(ctx, m); a != nil && a.Leader == a.Header.MemberId {
				leader = m
			}
		}
		return leader != nil
	})
	return leader
}

// second waits for a second and reports what happened in it.
func (s *demo) second(ctx context.Context) {
	from := time.Now()
	demokit.Pause(ctx, time.Second)
	_, inside := s.witness.count()
	twice, _ := s.witness.wrong()
	s.Say("%4d visits in 1 s   %2d inside, twice %d", len(s.witness.since(from)), inside, len(twice))
}

// everybody waits until every client has entered since a moment.
func (s *demo) everybody(from time.Time) {
	s.Await("every client to be inside once", func() bool {
		seen := map[int]bool{}
		for _, v := range s.witness.since(from) {
			seen[v.client] = true
		}
		return len(seen) == all
	})
}

// steady shows the normal state, before any fault.
func (s *demo) steady(ctx context.Context) {
	s.admit(ctx)
	s.Say("%d clients share %d locks, %d have one each, %d more have one each and stay inside for %s; half of them begin at A, half at B",
		sharing, sharedLocks, alone, staying, demokit.Pretty(stay))
	for range 3 {
		s.second(ctx)
	}
	if s.Broken {
		s.Await("two clients inside", func() bool { twice, _ := s.witness.wrong(); return len(twice) > 0 })
		return
	}
	s.everybody(time.Time{})
	s.Claim(true, "each of the %d clients was inside: one server is active, the other forwards to it, and waiters of both have their turn", all)
	s.claimSafe()
}

// claimSafe claims that the witness has seen no violation.
func (s *demo) claimSafe() {
	twice, fell := s.witness.wrong()
	s.Claim(len(twice) == 0 && len(fell) == 0, "nobody was inside twice, and tokens rose")
}

// showGap prints for how long nobody was served after a kill, and draws it.
func (s *demo) showGap(ctx context.Context, killed time.Time) {
	s.Await("visits", func() bool { return len(s.witness.since(killed)) >= 100 })
	s.Say("%s", s.Paint(demokit.Bold, "nobody was served for "+demokit.Pretty(gap(killed, s.witness.since(killed)))))
	spans := []demokit.Span{{Row: "kill -9", Began: killed, Ended: killed}}
	for _, v := range s.witness.since(killed.Add(-500 * time.Millisecond)) {
		spans = append(spans, demokit.Span{Row: "visits", Began: v.at, Ended: v.at})
	}
	s.Timeline(spans)
	s.second(ctx)
}

// leaderKilled shows for how long nobody is served after the etcd leader's death.
func (s *demo) leaderKilled(ctx context.Context) {
	old := s.awaitLeader(ctx)
	at := time.Now()
	s.Say("kill -9 %d: etcd %s, which leads", old.PID(), old.Member.Name)
	old.Kill()
	heir := s.awaitLeader(ctx)
	s.Say("etcd %s leads", heir.Member.Name)
	s.showGap(ctx, at)
	s.Claim(true, "with two of three members, clients are served")
	old.Start()
	s.Say("etcd %s is back as process %d", old.Member.Name, old.PID())
	revision := int64(0)
	s.Await("it to have what the others have", func() bool {
		a, b := status(ctx, old), status(ctx, heir)
		if revision == 0 && b != nil {
			revision = b.Header.Revision
		}
		return a != nil && revision > 0 && a.Header.Revision >= revision
	})
	s.Claim(true, "it has all %d revisions of the others", revision)
	s.claimSafe()
}

// serverKilled kills a server, which half of the clients ask first.
func (s *demo) serverKilled(i, heir int) func(context.Context) {
	return func(ctx context.Context) {
		dead, at := s.servers[i], time.Now()
		s.Say("kill -9 %d: lock server %s", dead.PID(), dead.Name)
		dead.Kill()
		s.showGap(ctx, at)
		s.everybody(at)
		s.Claim(true, "all %d clients were inside again, through %s", all, s.servers[heir].Name)
		s.serve(i)
		s.claimSafe()
	}
}

// judged stops the clients and reports the result.
func (s *demo) judged(context.Context) {
	s.leave()
	demokit.Check(s.working.Wait())
	total, inside := s.witness.count()
	lost := int64(0)
	for _, c := range s.clients {
		lost += c.lost.Load()
	}
	s.Say("%d visits by %d clients to %d locks; %d leases ended while their holder was inside, who left then", total, len(s.clients), sharedLocks+alone+staying, lost)
	twice, fell := s.witness.wrong()
	s.Draw(demokit.Red, append(twice[:min(3, len(twice))], fell[:min(3, len(fell))]...)...)
	s.ClaimNone(len(twice), "nobody was inside a lock in which somebody else was")
	s.ClaimNone(len(fell), "each token was greater than the last one of its lock")
	s.Claim(inside == 0, "all came out")
}

// stay lets the clients continue until ctx ends.
func (s *demo) stay(ctx context.Context) {
	s.admit(ctx)
	s.Say("the clients are back: kill what you like, and see; Ctrl-C ends it")
	for ctx.Err() == nil {
		s.second(ctx)
	}
}
