package system

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/gauge"
)

// Lose ends one session after the other, once all are watched.
func (p *pglatchClient) Lose(ctx context.Context, n int) (*gauge.Histogram, error) {
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
	h := new(gauge.Histogram)
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
func lose(ctx context.Context, admin *pgx.Conn, pid uint32, locks []*advisory.Lock, h *gauge.Histogram) error {
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
