package system

import "context"

// A peer is a client of a library that takes a lock in one call and releases it in another.
type peer struct {
	// take is called by a worker, or by worker 0 for a lock that is kept.
	take      func(ctx context.Context, worker int, key uint32) (release, error)
	footprint func(context.Context) (Footprint, error)
	close     func() error
}

// A release gives a lock back.
type release func(context.Context) error

func (r release) Release() error { return r(context.Background()) }

func (p *peer) Cycle(ctx context.Context, worker int, key uint32, held func()) error {
	give, err := p.take(ctx, worker, key)
	if err != nil {
		return err
	}
	held()
	return give(context.WithoutCancel(ctx))
}

func (p *peer) Take(ctx context.Context, key uint32) (Held, error) {
	give, err := p.take(ctx, 0, key)
	if err != nil {
		return nil, err
	}
	return give, nil
}

func (p *peer) Footprint(ctx context.Context) (Footprint, error) { return p.footprint(ctx) }

func (p *peer) Close() error { return p.close() }
