package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/lease/etcd/integration/etcdtest"
)

// A story is the state that the scenes share.
type story struct {
	*demokit.Narrator
	broken bool

	dir     string
	members []*etcdtest.Process
	servers []*server
	clients []*client
	witness *witness

	leave   context.CancelFunc // stops the clients
	working sync.WaitGroup
	failed  chan error
}

// A server is a lock server. After a kill, another process may continue it at the same address.
type server struct {
	*demokit.Process
	address string
}

// Title implements demokit.Story, as the methods below do.
func (s *story) Title() string {
	return "pglatch: three etcd members, two lock servers, 40 clients, and kill -9"
}

// Open starts the processes.
func (s *story) Open(ctx context.Context) (err error) {
	s.witness = newWitness()
	if s.dir, err = os.MkdirTemp("", "pglatch-demo-"); err != nil {
		return err
	}
	if s.members, err = etcdtest.StartCluster(ctx, s.dir, 3); err != nil {
		return err
	}
	leader, err := s.awaitLeader(ctx)
	if err != nil {
		return err
	}
	for _, m := range s.members {
		role := "follows"
		if m == leader {
			role = "leads"
		}
		s.Say("etcd %s is process %d at %s, and %s", s.member(m), m.PID(), m.Address, role)
	}
	addresses, err := etcdtest.FreeAddresses(ctx, 2)
	if err != nil {
		return err
	}
	for i, name := range []string{"A", "B"} {
		s.servers = append(s.servers, &server{address: addresses[i]})
		if err := s.serve(ctx, s.servers[i], name); err != nil {
			return err
		}
		s.Say("lock server %s is process %d at %s", s.Paint(demokit.Cyan, name), s.servers[i].PID(), s.servers[i].URL)
	}
	return nil
}

func (s *story) member(m *etcdtest.Process) string { return s.Paint(demokit.Cyan, m.Member.Name) }

// serve starts a lock server, or restarts it after a kill.
func (s *story) serve(ctx context.Context, at *server, name string) (err error) {
	var cluster []string
	for _, m := range s.members {
		cluster = append(cluster, m.Address)
	}
	at.Process, err = demokit.StartProcess(ctx, name, listenVariable+"="+at.address, clusterVariable+"="+strings.Join(cluster, ","))
	return err
}

// admit starts the clients, one half with A as its first server, the other with B.
func (s *story) admit(ctx context.Context) error {
	urls := []string{s.servers[0].URL, s.servers[1].URL}
	ctx, s.leave = context.WithCancel(ctx)
	s.failed = make(chan error, all)
	for i := range all {
		first := i / sharedLocks % 2 // so that each shared lock has clients at both servers
		c, err := newClient(i, []string{urls[first], urls[1-first]}, s.witness, s.broken)
		if err != nil {
			return err
		}
		s.clients = append(s.clients, c)
		s.working.Go(func() {
			if err := c.work(ctx); err != nil {
				s.failed <- err
			}
		})
	}
	return nil
}

// at returns the clients that asked a server last: all of them, or only those that are alone.
func (s *story) at(x *server, onlyAlone bool) (numbers []int) {
	for _, c := range s.clients {
		if *c.host.Load() == x.address && (c.alone() || !onlyAlone) {
			numbers = append(numbers, c.number)
		}
	}
	return numbers
}

// Close ends everything that was started.
func (s *story) Close() (err error) {
	if s.leave != nil {
		s.leave()
	}
	for _, x := range s.servers {
		if x.Process != nil {
			err = errors.Join(err, x.Kill())
		}
	}
	for _, m := range s.members {
		err = errors.Join(err, m.Kill())
	}
	s.working.Wait()
	return errors.Join(err, os.RemoveAll(s.dir))
}

// Scenes returns one scene for each promise.
func (s *story) Scenes() []demokit.Scene {
	if s.broken {
		return []demokit.Scene{
			{Title: "40 clients work, and those of shared locks ignore that their leases end", Play: s.steady},
			{Title: "The clients leave: what the witness has seen", Play: s.judged},
		}
	}
	return []demokit.Scene{
		{Title: "40 clients work through both lock servers", Play: s.steady},
		{Title: "kill -9 of the etcd leader: the other members elect one, and it comes back", Play: s.leaderKilled},
		{Title: "kill -9 of a lock server: its clients go on with the other one", Play: s.serverKilled},
		{Title: "kill -9 of that other one: all go to the server that came back", Play: s.serverKilled},
		{Title: "The clients leave: what the witness has seen", Play: s.judged},
	}
}

// Logs returns the ends of the lock servers' logs.
func (s *story) Logs() string {
	var b strings.Builder
	for _, x := range s.servers {
		fmt.Fprintf(&b, "the end of the log of lock server %s, process %d:\n%s\n", x.Name, x.PID(), x.Log.Tail())
	}
	return b.String()
}

// Stay lets the clients continue until ctx ends.
func (s *story) Stay(ctx context.Context) {
	s.clients = nil
	if err := s.admit(ctx); err != nil {
		s.Say("%v", err)
		return
	}
	s.Say("the clients are back: kill what you like, and see; Ctrl-C ends it")
	for _, m := range s.members {
		s.Draw(fmt.Sprintf("kill -9 %d   etcd %s", m.PID(), m.Member.Name))
	}
	for _, x := range s.servers {
		s.Draw(fmt.Sprintf("kill -9 %d   lock server %s", x.PID(), x.Name))
	}
	for ctx.Err() == nil {
		s.live(ctx)
	}
	s.Printf("\n")
}
