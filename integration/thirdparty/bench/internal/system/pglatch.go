package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/histogram"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// pglatches returns the modes of this project.
func pglatches() []System {
	return []System{
		{Name: Dedicated, Title: "**pglatch, dedicated**", Needs: Postgres, Ours: true, PerLock: true, Open: pglatchOpener(0)},
		{Name: Multiplexed1, Title: "**pglatch, multiplexed on 1**", Needs: Postgres, Ours: true, Open: pglatchOpener(1)},
		{Name: Multiplexed2, Title: "**pglatch, multiplexed on 2**", Needs: Postgres, Ours: true, MaxStock: 1_000_000, Open: pglatchOpener(2)},
	}
}

// ttl makes a session survive the time between two turns, which is less than half of it. It
// makes a ping go out in most turns.
func (p *pglatchClient) ttl() time.Duration { return max(3*time.Second, p.env.Idle*5/2) }

// mostOnOne is the largest number of locks on one connection.
const mostOnOne = 1 << 17

// cycling is the largest number of workers that take one lock each.
const cycling = 512

// sentinelKey returns a key that only this process uses: loads use keys below 2³⁰.
func sentinelKey() int64 { return 1<<30 + int64(os.Getpid())%(1<<30) }

// pglatchClient is a client on a Locker.
type pglatchClient struct {
	env       Env
	multiplex int // connections that carry all locks; 0 = one for each lock
	locker    *advisory.Locker
	sessions  session.Source // the Locker's
	space     namespace.Namespace
	sentinel  *advisory.Lock // nil = none
}

func pglatchOpener(multiplex int) func(context.Context, Env) (Client, error) {
	return func(ctx context.Context, env Env) (Client, error) {
		p := &pglatchClient{env: env, multiplex: multiplex, space: namespace.Must(keySpace, "bench")}
		var err error
		open := session.WithOpener(ctx, func(open func() (session.Source, error)) (_ session.Source, err error) {
			p.sessions, err = open()
			return p.sessions, err
		})
		if p.locker, err = advisory.Open(open, p.config()); err != nil {
			return nil, err
		}
		if env.Sentinel {
			if p.sentinel, err = p.locker.Acquire(context.WithoutCancel(ctx), p.space.ID(sentinelKey())); err != nil {
				p.locker.Close()
				return nil, err
			}
		}
		return p, nil
	}
}

func (p *pglatchClient) config() advisory.Config {
	config := advisory.Config{
		DSN: p.env.Addresses[Postgres], ApplicationName: p.env.Tag, SessionTTL: p.ttl(), Wait: advisory.NoTimeout,
		MaxLocks: p.env.Locks,
	}
	if p.multiplex == 0 {
		config.MaxConns = max(p.env.Conns, p.env.Locks)
		if p.env.Sentinel {
			config.MaxConns++
		}
		return config
	}
	config.LocksPerConn = min(max(p.env.Locks+1, cycling)/p.multiplex+1, mostOnOne) // including the sentinel
	return config
}

func (p *pglatchClient) Cycle(ctx context.Context, _ int, key uint32, held func()) error {
	lock, err := p.locker.Acquire(ctx, p.space.ID(int64(key)))
	if err != nil {
		return err
	}
	held()
	return lock.Release()
}

func (p *pglatchClient) Take(ctx context.Context, key uint32) (Held, error) {
	return p.locker.Acquire(ctx, p.space.ID(int64(key)))
}

func (p *pglatchClient) Guards(ctx context.Context) error {
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for {
		s, guards := p.locker.Stats(), p.sessions.Stats()
		grants := s.Acquired - s.HandOvers // by the server
		if p.multiplex > 0 {
			grants = s.Batches // granted by one answer
		}
		switch {
		case s.Lost > 0:
			return fmt.Errorf("%d locks were lost", s.Lost)
		case guards.Pings > 0 && guards.Watches > 0 && guards.PIDChecks > 0 && guards.PIDChecks >= grants:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the guards are off: %d pings, %d watches, %d compared pids in %d grants: %w",
				guards.Pings, guards.Watches, guards.PIDChecks, grants, context.Cause(ctx))
		case <-poll.C:
		}
	}
}

func (p *pglatchClient) Footprint(ctx context.Context) (Footprint, error) { return p.env.sessions(ctx) }

func (p *pglatchClient) Close() error {
	p.locker.Close()
	return nil
}

// Lose ends one session after the other, once all are watched.
func (p *pglatchClient) Lose(ctx context.Context, n int) (*histogram.Histogram, error) {
	admin, err := pgx.Connect(ctx, p.env.Addresses[Postgres])
	if err != nil {
		return nil, err
	}
	defer admin.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is left to lose
	bySession := map[uint32][]*advisory.Lock{}
	for i := range n {
		lock, err := p.locker.Acquire(ctx, p.space.ID(int64(i)))
		if err != nil {
			return nil, err
		}
		bySession[lock.PID()] = append(bySession[lock.PID()], lock)
	}
	if err := p.watched(ctx, len(bySession)); err != nil {
		return nil, err
	}
	h := new(histogram.Histogram)
	for pid, locks := range bySession {
		if err := lose(ctx, admin, pid, locks, h); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// watched waits until this many sessions are watched.
func (p *pglatchClient) watched(ctx context.Context, sessions int) error {
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for p.sessions.Stats().Watches < int64(sessions) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d sessions are watched: %w", p.sessions.Stats().Watches, sessions, context.Cause(ctx))
		case <-poll.C:
		}
	}
	return nil
}

// lose ends a session that carries locks, and adds the time of each lock.
func lose(ctx context.Context, admin *pgx.Conn, pid uint32, locks []*advisory.Lock, h *histogram.Histogram) error {
	told := make([]time.Time, len(locks))
	errs := make([]error, len(locks))
	var ready, all sync.WaitGroup
	for i, lock := range locks {
		ready.Add(1)
		all.Go(func() {
			held := lock.Context()
			ready.Done()
			select {
			case <-held.Done():
				told[i] = time.Now()
				if !errors.Is(context.Cause(held), advisory.ErrLost) {
					errs[i] = fmt.Errorf("the lock's context ended with %w", context.Cause(held))
				}
			case <-ctx.Done():
				errs[i] = fmt.Errorf("a holder was not told: %w", context.Cause(ctx))
			}
		})
	}
	ready.Wait()
	began := time.Now()
	_, err := admin.Exec(ctx, "SELECT pg_terminate_backend($1)", pid)
	if err != nil {
		return err // the waits end with ctx
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, t := range told {
		h.Add(t.Sub(began))
	}
	return nil
}
