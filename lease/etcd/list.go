package etcd

import (
	"context"
	"iter"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

// A named is a name and its view from a read.
type named struct {
	name string
	*view
}

// page reads the names after one, up to a number of keys. last is the last name that was read
// completely, "" if there are no more.
func (s *Store) page(ctx context.Context, after, from string, keys int) (names []named, last string, err error) {
	start := max(s.config.Prefix+from, s.config.Prefix+after+behind)
	if after == "" {
		start = max(s.config.Prefix+from, s.config.Prefix+behind) // after the store's own keys
	}
	r, err := s.client.Get(ctx, start, clientv3.WithRange(clientv3.GetPrefixRangeEnd(s.config.Prefix)), clientv3.WithLimit(int64(keys)))
	if err != nil {
		return nil, "", undone(ctx, err)
	}
	for _, kv := range r.Kvs {
		name, k, ok := s.parse(kv.Key)
		if !ok {
			continue
		}
		if len(names) == 0 || names[len(names)-1].name != name {
			names = append(names, named{name, &view{header: r.Header}})
		}
		if err := names[len(names)-1].add(name, k, kv); err != nil {
			return nil, "", err
		}
	}
	if r.More && len(names) > 0 { // the last name may have more keys
		last = names[len(names)-1].name
		if len(names) > 1 {
			names = names[:len(names)-1]
			last = names[len(names)-1].name
		}
	}
	return names, last, nil
}

// asking is how many requests for remaining time are in flight at a time.
const asking = 32

// List implements [lease.Store]. Each page is a consistent snapshot.
func (s *Store) List(ctx context.Context, r lease.ListRequest) iter.Seq2[lease.Record, error] {
	return rules.List(r, func(after string, size int) (records []lease.Record, err error) {
		err = s.again(ctx, func(ctx context.Context) (bool, error) {
			records, err = s.records(ctx, after, r.Prefix, size)
			return err == nil, err
		})
		return records, err
	})
}

// records returns the records of names after one, starting at the prefix: at least size of them, if
// there are as many.
func (s *Store) records(ctx context.Context, after, prefix string, size int) ([]lease.Record, error) {
	var all []named
	for len(all) < size {
		names, last, err := s.page(ctx, after, prefix, int(kinds)*(size-len(all)+1))
		if err != nil {
			return nil, err
		}
		beyond := false
		for _, n := range names {
			beyond = beyond || !strings.HasPrefix(n.name, prefix)
			if n.row.Token != 0 && !beyond {
				all = append(all, n)
			}
		}
		if after = last; last == "" || beyond {
			break
		}
	}
	all = all[:min(len(all), size)]
	records := make([]lease.Record, len(all))
	var reading errgroup.Group
	reading.SetLimit(asking)
	for i, n := range all {
		reading.Go(func() (err error) {
			records[i], err = s.record(ctx, n.view)
			return err
		})
	}
	if err := reading.Wait(); err != nil {
		return nil, err
	}
	return records, nil
}
