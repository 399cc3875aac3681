package system

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// etcdConnections is the number of connections with which etcd made most cycles per second.
const etcdConnections = 4

// etcdClient has a session for each worker, on a few connections: a session does not exclude
// itself.
type etcdClient struct {
	pid      int
	clients  []*clientv3.Client
	sessions []*concurrency.Session
}

func etcdOpener(server Server) func(context.Context, Env) (Client, error) {
	return func(ctx context.Context, env Env) (Client, error) {
		c := &etcdClient{pid: env.PIDs[server]}
		if err := c.dial(ctx, env.Addresses[server], max(env.Workers, 1)); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		return c, nil
	}
}

func (c *etcdClient) dial(ctx context.Context, address string, workers int) error {
	for range min(etcdConnections, workers) {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: time.Minute, Logger: zap.NewNop()})
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

func (c *etcdClient) Cycle(ctx context.Context, worker int, key uint32, held func()) error {
	m := concurrency.NewMutex(c.sessions[worker], name(key))
	if err := m.Lock(ctx); err != nil {
		return err
	}
	held()
	return m.Unlock(context.WithoutCancel(ctx))
}

func name(key uint32) string { return "/lock/" + strconv.FormatUint(uint64(key), 10) }

// owned is a lock of a session.
type owned struct{ *concurrency.Mutex }

func (c *etcdClient) Take(ctx context.Context, key uint32) (Held, error) {
	m := concurrency.NewMutex(c.sessions[0], name(key))
	if err := m.Lock(ctx); err != nil {
		return nil, err
	}
	return owned{m}, nil
}

func (o owned) Release() error { return o.Unlock(context.Background()) }

func (c *etcdClient) Footprint(context.Context) (Footprint, error) {
	return Footprint{Connections: len(c.clients), PIDs: []int{c.pid}}, nil
}

// Close revokes the sessions' leases and thereby releases all remaining locks.
func (c *etcdClient) Close() error {
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
