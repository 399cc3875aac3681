package main

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/lease/etcd/integration/etcdtest"
)

// status returns the status of one member, or nil if it does not answer.
func status(ctx context.Context, m *etcdtest.Process) *clientv3.StatusResponse {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{m.Address}, Logger: zap.NewNop()})
	if err != nil {
		return nil
	}
	defer client.Close() //nolint:errcheck // the status has been read
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	answer, err := client.Status(ctx, m.Address)
	if err != nil {
		return nil
	}
	return answer
}

// awaitLeader returns the leading member as soon as it says itself that it leads.
func (s *story) awaitLeader(ctx context.Context) (leader *etcdtest.Process, err error) {
	err = demokit.Await(ctx, "a leader of etcd", func() (bool, error) {
		for _, m := range s.members {
			if a := status(ctx, m); a != nil && a.Leader == a.Header.MemberId {
				leader = m
				return true, nil
			}
		}
		return false, nil
	})
	return leader, err
}

// awaitCaughtUp waits until a member has reached the current revision of another.
func (s *story) awaitCaughtUp(ctx context.Context, m, other *etcdtest.Process) (revision int64, err error) {
	if a := status(ctx, other); a != nil {
		revision = a.Header.Revision
	}
	return revision, demokit.Await(ctx, m.Member.Name+" to have what the others have", func() (bool, error) {
		a := status(ctx, m)
		return a != nil && a.Header.Revision >= revision, nil
	})
}
