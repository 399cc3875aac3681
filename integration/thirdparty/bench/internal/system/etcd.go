package system

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// etcdConnections is the number of connections with which etcd made most cycles per second.
const etcdConnections = 4

// etcdClient has a session for each worker, as a separate process would have, on a few
// connections: a session does not exclude itself.
type etcdClient struct {
	clients  []*clientv3.Client
	sessions []*concurrency.Session
}

// etcdOpener opens a client of a server, or of a cluster with commas between the addresses.
func etcdOpener(server Server) func(context.Context, Env) (Client, error) {
	return func(ctx context.Context, env Env) (Client, error) {
		c := new(etcdClient)
		if err := c.dial(ctx, strings.Split(env.Addresses[server], ","), max(env.Workers, 1)); err != nil {
			return nil, errors.Join(err, c.close())
		}
		footprint := Footprint{Connections: len(c.clients), PIDs: []int{env.PIDs[server]}}
		return &peer{c.take, func(context.Context) (Footprint, error) { return footprint, nil }, c.close}, nil
	}
}

func (c *etcdClient) dial(ctx context.Context, addresses []string, workers int) error {
	for range min(etcdConnections, workers) {
		client, err := clientv3.New(clientv3.Config{Endpoints: addresses, DialTimeout: time.Minute, Logger: zap.NewNop()})
		if err != nil {
			return err
		}
		c.clients = append(c.clients, client)
	}
	c.sessions = make([]*concurrency.Session, workers)
	errs := make([]error, workers)
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			c.sessions[i], errs[i] = concurrency.NewSession(c.clients[i%len(c.clients)],
				concurrency.WithTTL(int(leaseTime.Seconds())), concurrency.WithContext(context.WithoutCancel(ctx)))
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

func (c *etcdClient) take(ctx context.Context, worker int, key uint32) (release, error) {
	m := concurrency.NewMutex(c.sessions[worker], "/lock/"+strconv.FormatUint(uint64(key), 10))
	return m.Unlock, m.Lock(ctx)
}

// close revokes the sessions' leases and thereby releases all remaining locks.
func (c *etcdClient) close() error {
	errs := make([]error, len(c.sessions))
	var all sync.WaitGroup
	for i, s := range c.sessions {
		if s != nil {
			all.Go(func() { errs[i] = s.Close() })
		}
	}
	all.Wait()
	for _, client := range c.clients {
		errs = append(errs, client.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	return nil
}
