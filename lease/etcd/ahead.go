package etcd

import (
	"context"

	"github.com/pglatch/pglatch/lease"
)

// A readied is an etcd lease that was renewed for a hand-over before the release.
type readied struct {
	want *want // nil = it was used
	made int64 // how many connections had been made before it was renewed
}

// take returns the etcd lease, if it was not used yet and fits a view. It does not fit the view of
// another term of etcd's leaders: the leader that renewed it may have been replaced since. Nor does it
// fit that of a later connection, which may lead to a cluster with another history.
func (r *readied) take(v *view, c class) (got supplied, ok bool) {
	if r == nil || r.want == nil || r.want.class != c || r.made != v.made {
		return supplied{}, false
	}
	got, r.want = r.want.supplied, nil
	return got, true
}

// PrepareHandOver renews an etcd lease for next, so that handing the lock over then takes only one
// transaction. The time of the lease begins no earlier than the call. The caller calls handOver or
// cancel, once. Both are nil if there is nothing to prepare: for a name that the Store does not
// remember, and for requests with a LockDelay, MinHold or MaxLifetime.
func (s *Store) PrepareHandOver(ctx context.Context, next lease.AcquireRequest) (
	handOver func(context.Context, lease.ReleaseRequest) (l lease.Lease, released, acquired error), cancel func(), err error,
) {
	v := s.guess(next.Name)
	if v == nil || next.Validate() != nil || next.LockDelay > 0 || next.MinHold > 0 || next.MaxLifetime > 0 {
		return nil, nil, nil
	}
	ctx, stop := s.bounded(ctx)
	defer stop()
	w := &want{class: class{seconds(next.TTL), v.term()}}
	if _, err := s.get(ctx, w); err != nil {
		return nil, nil, err
	}
	ready := &readied{w, v.made}
	cancel = func() {
		if ready.want != nil {
			s.retire(ready.want.mark)
		}
	}
	handOver = func(ctx context.Context, r lease.ReleaseRequest) (l lease.Lease, released, acquired error) {
		defer cancel()
		return s.handOver(ctx, r, next, ready)
	}
	return handOver, cancel, nil
}
