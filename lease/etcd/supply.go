package etcd

import (
	"context"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/internal/background"
)

// A class is what distinguishes etcd leases: their requested seconds, and the term of etcd's
// leaders before which no leader may count them.
type class struct{ asked, term int64 }

// A want is a change that needs an etcd lease. Changes that want one of a class at the same time
// share it. It lasts from no earlier than their calls, and while it has keys nobody renews it. So
// each of them ends when it would have ended with an etcd lease of its own.
type want struct {
	ctx context.Context
	class
	own mark // that can be renewed instead; the zero mark = none

	supplied
	err  error
	done chan struct{} // closed when supplied and err can be read
}

// supplied is the etcd lease of a want.
type supplied struct {
	mark    mark
	reused  bool
	on      bool // mark is set; false = own has ended, or an unknown leader has renewed it
	touched bool // own was renewed, or may have been
}

// get fills a want.
func (s *Store) get(ctx context.Context, w *want) (supplied, error) {
	w.ctx, w.done = ctx, make(chan struct{})
	if !s.wants.Add(w) {
		return supplied{}, errClosed
	}
	select {
	case <-w.done:
		return w.supplied, w.err
	case <-ctx.Done():
		dropped := s.wants.Drop(w) // else its etcd lease expires without being used again
		return supplied{touched: !dropped && w.own.set()}, undone(ctx, context.Cause(ctx))
	}
}

// supply fills wants, those of each class together.
func (s *Store) supply(take func() []*want) {
	s.wants.Settle()
	batch := take()
	classes := make(map[class][]*want)
	for _, w := range batch {
		classes[w.class] = append(classes[w.class], w)
	}
	var wg sync.WaitGroup
	for c, all := range classes {
		fill := func() { s.fillAll(c, all) }
		if len(all) == 1 {
			fill = func() { s.fillOne(all[0]) }
		}
		if len(classes) == 1 {
			fill()
			break
		}
		wg.Go(fill)
	}
	wg.Wait()
	s.wants.Yield(len(batch))
}

// fillOne renews the want's own etcd lease, or gets another one.
func (s *Store) fillOne(w *want) {
	defer close(w.done)
	if !w.own.set() {
		w.mark, w.reused, w.err = s.grant(w.ctx, w.asked, w.term)
		w.on = w.err == nil
		return
	}
	w.touched = true
	in, on, err := s.prolong(w.ctx, w.own)
	w.mark, w.on, w.err = w.own, on && in == w.term, err
}

// fillAll gets one etcd lease for several wants.
func (s *Store) fillAll(c class, all []*want) {
	callers := make([]context.Context, 0, len(all))
	for _, w := range all {
		callers = append(callers, w.ctx)
	}
	ctx, cancel := background.WhileAny(clientv3.WithRequireLeader(context.Background()), callers)
	defer cancel()
	m, reused, err := s.grant(ctx, c.asked, c.term)
	if err == nil {
		m = s.spare.share(m, len(all))
	}
	for _, w := range all {
		w.mark, w.reused, w.on, w.err = m, reused, err == nil, err
		close(w.done)
	}
}
