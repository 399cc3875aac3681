package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// seconds converts a duration to etcd's unit, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// A spare etcd lease has no keys and belongs to no name. To renew one costs no commit; to grant one
// does.
const (
	mostSpare   = 1024
	mostShared  = 4096
	mostRetired = 1024
	mostAhead   = 16
)

// spares are etcd leases that only this Store may use, by the requested seconds.
type spares struct {
	mu    sync.Mutex
	count int
	free  map[int64][]mark
	keys  map[clientv3.LeaseID]int // that may be attached to the shared etcd leases that this Store granted
}

// take returns a spare etcd lease, and whether it was the last one of its kind.
func (p *spares) take(asked int64) (m mark, last, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.free[asked]
	if len(all) == 0 {
		return m, true, false
	}
	p.count--
	p.free[asked] = all[:len(all)-1]
	return all[len(all)-1], len(all) == 1, true
}

func (p *spares) put(m mark) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count == mostSpare {
		return false
	}
	p.count++
	p.free[m.asked] = append(p.free[m.asked], m)
	return true
}

func (p *spares) has(asked int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.free[asked]) > 0
}

// share returns the mark of so many keys of an etcd lease. If there are too many shared ones, all
// earlier ones are forgotten: they expire, and are not used again.
func (p *spares) share(m mark, keys int) mark {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keys == nil || len(p.keys) == mostShared {
		p.keys = make(map[clientv3.LeaseID]int)
	}
	p.keys[m.lease] = keys
	m.shared = true
	return m
}

// leave records that a key is certainly not attached to a shared etcd lease any more. It returns
// the spare etcd lease if no key is. An etcd lease of another Store never becomes spare.
func (p *spares) leave(m mark) (spare mark, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch p.keys[m.lease] {
	case 0:
		return mark{}, false
	case 1:
		delete(p.keys, m.lease)
		m.shared = false
		return m, true
	}
	p.keys[m.lease]--
	return mark{}, false
}

// grant returns an etcd lease whose time begins no earlier than the call. No leader of a term
// before term, which a read has shown, counts it. A spare one (reused) may have been renewed by a
// later leader; the transaction then shows that.
func (s *Store) grant(ctx context.Context, asked, term int64) (m mark, reused bool, err error) {
	for {
		m, last, ok := s.spare.take(asked)
		if last {
			s.grantAhead(asked, term)
		}
		if !ok {
			break
		}
		if !m.since(term) {
			s.giveUp(m)
			continue
		}
		in, on, err := s.prolong(ctx, m)
		if err != nil || on && in == term {
			return m, true, err
		}
		if in > term { // a leader that the view does not know counts all spare ones
			s.giveUp(m)
			break
		}
	}
	m, err = s.grantNew(ctx, asked, term)
	return m, false, err
}

func (s *Store) grantNew(ctx context.Context, asked, term int64) (mark, error) {
	r, err := s.client.Grant(ctx, asked)
	if err != nil {
		return mark{}, undone(ctx, err)
	}
	return mark{lease: r.ID, asked: asked, granted: max(r.TTL, asked), term: term}, nil
}

// grantAhead requests a spare etcd lease, so that the next change need not wait for a grant. A
// change renews it before use, so its age does not matter.
func (s *Store) grantAhead(asked, term int64) {
	select {
	case s.wanted <- class{asked, term}:
	default: // the next change gets one itself
	}
}

// prolong renews an etcd lease; false if it has expired. It was renewed by the leader of the
// returned term, or of a later one: a member reports its own term before it asks its leader.
func (s *Store) prolong(ctx context.Context, m mark) (term int64, on bool, err error) {
	r, err := s.client.KeepAliveOnce(ctx, m.lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, undone(ctx, err)
	}
	return int64(r.RaftTerm), true, nil
}

// left returns the remaining time of an etcd lease, rounded down; 0 if it has expired.
func (s *Store) left(ctx context.Context, m mark) (time.Duration, error) {
	r, err := s.client.TimeToLive(ctx, m.lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, undone(ctx, err)
	}
	return time.Duration(max(r.TTL, 0)) * time.Second, nil
}

// retire takes back etcd leases to which a key was attached, and certainly is no longer.
func (s *Store) retire(marks ...mark) {
	for _, m := range marks {
		ok := m.set()
		if ok && m.shared {
			m, ok = s.spare.leave(m)
		}
		if ok && !s.spare.put(m) {
			s.giveUp(m)
		}
	}
}

// giveUp requests the end of an unused etcd lease.
func (s *Store) giveUp(m mark) {
	select {
	case s.retired <- m.lease:
	default: // it expires
	}
}

// keep ends the etcd leases that were given up, and grants those that will be needed.
func (s *Store) keep() {
	for {
		ctx, cancel := context.WithTimeout(s.closing, DefaultTimeout)
		select {
		case <-s.closing.Done():
			cancel()
			return
		case id := <-s.retired:
			_, _ = s.client.Revoke(ctx, id) // else it expires
		case want := <-s.wanted:
			if s.spare.has(want.asked) {
				break
			}
			if m, err := s.grantNew(ctx, want.asked, want.term); err == nil {
				s.retire(m)
			}
		}
		cancel()
	}
}
