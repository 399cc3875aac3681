package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

// A view is a name as one read showed it, or as the last transaction of this Store left it.
type view struct {
	row      rules.Row // the zero Row if there is no record
	revision int64     // of the record; 0 = there is none
	marks    [kinds]mark
	header   *etcdserverpb.ResponseHeader
	made     int64 // how many connections had been made before it was read

	guess bool  // it was not read: only a transaction that compares it can confirm a decision
	found *view // what a transaction read instead of it, because it was outdated; nil = nothing
}

// read returns the operation that reads all keys of a name.
func (s *Store) read(name string) clientv3.Op {
	return clientv3.OpGet(s.key(name, recordKey), clientv3.WithRange(s.config.Prefix+name+behind))
}

// look reads all keys of a name, at one moment, from a member that has asked a majority.
func (s *Store) look(ctx context.Context, name string) (*view, error) {
	made := s.connections.Load()
	r, err := s.client.Do(ctx, s.read(name))
	if err != nil {
		return nil, undone(ctx, err)
	}
	s.views.saw(made, r.Get().Header)
	return s.view(name, r.Get().Kvs, r.Get().Header, made)
}

// view returns the view of a name that a read showed.
func (s *Store) view(name string, kvs []*mvccpb.KeyValue, header *etcdserverpb.ResponseHeader, made int64) (*view, error) {
	v := &view{row: rules.Row{Claim: lease.Claim{}}, header: header, made: made}
	for _, kv := range kvs {
		if _, k, ok := s.parse(kv.Key); ok {
			if err := v.add(name, k, kv); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func (v *view) add(name string, k kind, kv *mvccpb.KeyValue) (err error) {
	if k != recordKey {
		v.marks[k], err = decodeMark(kv)
		return err
	}
	v.revision = kv.ModRevision
	v.row, err = decode(name, kv)
	return err
}

// held reports whether the lease is current.
func (v *view) held() bool {
	return v.row.Token != 0 && v.row.ReleasedAt.IsZero() && v.marks[held].set() && (v.row.MaxLifetime == 0 || v.marks[alive].set())
}

// term returns a term of etcd's leaders: the one of the read or guess, or an earlier one. A member
// reports the term of the last change that it has.
func (v *view) term() int64 { return int64(v.header.RaftTerm) }

// outlived reports whether an earlier leader of etcd's may have counted the etcd leases of a lease.
// If that leader was stopped and continues, it ends them when they are over by its own count,
// whatever its successor has renewed: https://github.com/etcd-io/etcd/issues/15247. So they are not
// renewed, but replaced by new ones that it does not count. MinHold needs no replacement: nobody
// relies on it for longer than it counts.
func (v *view) outlived() bool {
	for _, k := range []kind{held, delayed, alive} {
		if v.marks[k].set() && !v.marks[k].since(v.term()) {
			return true
		}
	}
	return false
}

// now returns the time for the rules. It is the wall clock's time, moved to agree with the marks,
// because the marks decide and not the clock. The times of a name advance, whatever the clocks of
// their writers.
func (v *view) now(wall time.Time) time.Time {
	wall = wall.Round(0).UTC()
	row := &v.row
	end, available := row.ExpiresAt, row.AvailableAt()
	switch {
	case row.Token == 0:
		return wall
	case v.held():
		return later(earlier(wall, end.Add(-1)), row.AcquiredAt)
	case !row.ReleasedAt.IsZero():
		end = row.ReleasedAt
	}
	if (v.marks[kept].set() || v.marks[delayed].set()) && available.After(end) {
		return later(earlier(wall, available.Add(-1)), end)
	}
	return later(later(wall, available), end)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// remaining returns the rest of the lease, rounded down, or 0 if it has ended.
func (s *Store) remaining(ctx context.Context, v *view) (time.Duration, error) {
	if !v.held() {
		return 0, nil
	}
	left, err := s.left(ctx, v.marks[held])
	if err == nil && v.marks[alive].set() && v.row.MaxLifetime != 0 {
		var life time.Duration
		life, err = s.left(ctx, v.marks[alive])
		left = min(left, life)
	}
	return max(left, shortest), err
}

// shortest is the minimum remaining time of a current lease.
const shortest = time.Millisecond

// availableIn returns how long the name is kept, rounded up; 0 if it is not.
func (s *Store) availableIn(ctx context.Context, v *view) (time.Duration, error) {
	var longest time.Duration
	for _, k := range []kind{held, delayed, kept} {
		m := v.marks[k]
		if !m.set() || k == held && !v.held() {
			continue
		}
		left, err := s.left(ctx, m)
		if err != nil {
			return 0, err
		}
		longest = max(longest, min(left+time.Second, time.Duration(m.granted)*time.Second))
	}
	return longest, nil
}

// record returns the record of a name, for Get.
func (s *Store) record(ctx context.Context, v *view) (lease.Record, error) {
	r := v.row.Record(v.now(s.config.Wall()))
	var err error
	if r.Remaining, err = s.remaining(ctx, v); err == nil {
		r.AvailableIn, err = s.availableIn(ctx, v)
	}
	return r, err
}
