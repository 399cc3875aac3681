package etcd

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// seconds converts a duration to etcd's unit, rounded up.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// A spare etcd lease has no keys and belongs to no name. To renew one costs no commit; to grant one
// does.
const (
	mostSpare   = 1024
	mostRetired = 1024
)

// spares are etcd leases that only this Store may use, by the requested seconds.
type spares struct {
	mu    sync.Mutex
	count int
	free  map[int64][]mark
}

func (p *spares) take(asked int64) (m mark, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.free[asked]
	if len(all) == 0 {
		return m, false
	}
	p.count--
	p.free[asked] = all[:len(all)-1]
	return all[len(all)-1], true
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

// grant returns an etcd lease that lasts from no earlier than the call. No leader of a term before
// term, which a read has shown, counts it. A spare one (reused) may have been renewed by a later
// leader; the transaction then shows that.
func (s *Store) grant(ctx context.Context, asked, term int64) (m mark, reused bool, err error) {
	for {
		m, ok := s.spare.take(asked)
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
	r, err := s.client.Grant(ctx, asked)
	if err != nil {
		return mark{}, false, undone(ctx, err)
	}
	return mark{r.ID, asked, max(r.TTL, asked), term}, false, nil
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

// retire takes back etcd leases that certainly have no keys any more. No other Store may use them.
func (s *Store) retire(marks ...mark) {
	for _, m := range marks {
		if m.set() && !s.spare.put(m) {
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

// revoke ends the etcd leases that were given up.
func (s *Store) revoke() {
	for {
		select {
		case <-s.closing.Done():
			return
		case id := <-s.retired:
			ctx, cancel := context.WithTimeout(s.closing, DefaultTimeout)
			_, _ = s.client.Revoke(ctx, id) // else it expires
			cancel()
		}
	}
}
