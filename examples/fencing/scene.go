package main

import (
	"context"
	"strings"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

// The text of the writer that holds the lease.
const second = "by writer-2"

// pause plays a scene: one writer is stopped between its check and its write, another
// takes over and writes, and the first resumes.
func (s *story) pause(ctx context.Context, locks *leasehttp.Client, target resource, fenced bool, env ...string) error {
	first, err := startProcess(ctx, append(env, serverVariable+"="+s.servers[locks])...)
	if err != nil {
		return err
	}
	defer first.kill()
	token, err := first.line()
	if err != nil {
		return err
	}
	s.Say("writer-1, process %d, has a lease of %s with token %s, and heartbeats", first.cmd.Process.Pid, demokit.Pretty(ttl), token)
	s.Say("it has looked: the lease is good. It is about to write, and %s", s.Paint(demokit.Red, "kill -STOP"))
	if err := first.stop(); err != nil {
		return err
	}
	err = demokit.Await(ctx, "the end of the lease", func() (bool, error) {
		record, err := locks.Get(ctx, lockName)
		return record.State == lease.Expired, err
	})
	if err != nil {
		return err
	}
	s.Say("no heartbeats: the lease has expired")
	if err := s.takeOver(ctx, locks, target); err != nil {
		return err
	}

	s.Say("%s: writer-1 goes on with its write", s.Paint(demokit.Green, "kill -CONT"))
	if err := first.resume(); err != nil {
		return err
	}
	outcome, err := first.line()
	if err != nil {
		return err
	}
	if err := first.end(); err != nil {
		return err
	}
	text, err := target.read(ctx)
	if err != nil {
		return err
	}
	s.Say("the write is answered: %s", outcome)
	s.Say("the document reads: %q", text)
	if fenced {
		s.Claim(strings.HasPrefix(outcome, errRefused.Error()), "the late write was refused")
		s.Claim(text == second, "what writer-2 wrote is still there")
	} else {
		s.Claim(outcome == stored && text != second, "without fencing the late write was stored, over what writer-2 had written")
	}
	return nil
}

// takeOver plays the second writer, with its own lease.
func (s *story) takeOver(ctx context.Context, locks *leasehttp.Client, target resource) error {
	held, err := locks.AcquireWithRetry(ctx, lockName, "writer-2", leasehttp.AcquireOptions{TTL: ttl})
	if err != nil {
		return err
	}
	defer func() { _ = locks.ReleaseOnce(ctx, held) }()
	if err := target.write(ctx, held.Claim(), second); err != nil {
		return err
	}
	s.Say("writer-2 has a lease with token %d, writes, and releases it", held.FencingToken())
	return nil
}
