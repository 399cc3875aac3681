package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/lease/etcd/integration/etcdtest"
)

// freeAddresses are loopback addresses at which nobody listens. What is killed must find its own
// free when it comes back, so their ports are none that the system gives to connections.
func freeAddresses(ctx context.Context, n int) (found []string, err error) {
	for range 1000 {
		if len(found) == n {
			return found, nil
		}
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			continue
		}
		defer listener.Close() //nolint:errcheck // until all are found, so that no one is found twice
		found = append(found, address)
	}
	return nil, errors.New("no free ports on 127.0.0.1")
}

// startMembers starts three etcd members that keep their data in dir.
func startMembers(dir string, addresses []string) (members []*etcdtest.Process, err error) {
	const size = 3
	var cluster []string
	for i := range size {
		cluster = append(cluster, fmt.Sprintf("m%d=http://%s", i+1, addresses[i]))
	}
	for i := range size {
		m, err := etcdtest.Start(etcdtest.Member{
			Name: fmt.Sprintf("m%d", i+1), Dir: filepath.Join(dir, fmt.Sprintf("m%d", i+1)), Cluster: strings.Join(cluster, ","),
			Peers: "http://" + addresses[i], Clients: "http://" + addresses[size+i],
		})
		if err != nil {
			return members, err
		}
		members = append(members, m)
	}
	return members, nil
}

// status asks one member what it knows; nil if it does not answer.
func status(ctx context.Context, m *etcdtest.Process) *clientv3.StatusResponse {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{m.Address}, Logger: zap.NewNop()})
	if err != nil {
		return nil
	}
	defer client.Close() //nolint:errcheck // it has been asked
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	answer, err := client.Status(ctx, m.Address)
	if err != nil {
		return nil
	}
	return answer
}

// awaitLeader returns the member that leads, as soon as it says so itself.
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

// awaitCaughtUp waits until a member has what another one has now.
func (s *story) awaitCaughtUp(ctx context.Context, m, other *etcdtest.Process) (revision int64, err error) {
	if a := status(ctx, other); a != nil {
		revision = a.Header.Revision
	}
	return revision, demokit.Await(ctx, m.Member.Name+" to have what the others have", func() (bool, error) {
		a := status(ctx, m)
		return a != nil && a.Header.Revision >= revision, nil
	})
}
