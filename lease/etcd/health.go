package etcd

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Health implements [lease.HealthReporter]. It checks that a majority answers, the user has access
// to the store's keys, and no member is out of space. It writes nothing, unless it is the first
// call of a store, or the cluster does not have the expected history.
func (s *Store) Health(ctx context.Context) error {
	return s.again(ctx, func(ctx context.Context) (bool, error) {
		if _, err := s.client.Get(ctx, s.eraKey()); err != nil {
			return false, undone(ctx, err)
		}
		if _, err := s.era(ctx); err != nil {
			return false, err
		}
		alarms, err := s.client.AlarmList(ctx)
		if denied(err) != nil { // only root may ask: a change will tell
			alarms, err = &clientv3.AlarmResponse{}, nil
		}
		if err != nil {
			return false, undone(ctx, err)
		}
		for _, a := range alarms.Alarms {
			if a.Alarm == etcdserverpb.AlarmType_NOSPACE {
				return false, busy(errNoSpace)
			}
		}
		return true, nil
	})
}
