package etcd_test

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
)

// A leader that was stopped revokes, when it goes on, what has expired in its eyes, and the
// leader after it does so: https://github.com/etcd-io/etcd/issues/15247.
func TestALeaderThatWasStoppedEndsNoLeaseThatTheNextOneRenewed(t *testing.T) {
	t.Parallel()
	c := startClusterOf(t, etcdtest.Member{Heartbeat: quick}, 3, 1)
	config := etcd.Config{Timeout: 500 * time.Millisecond}
	for _, m := range c.members {
		config.Client.Endpoints = append(config.Client.Endpoints, m.Address)
	}
	c.at(0, nil)(&config)
	var s *etcd.Store
	c.eventually(func() (ok bool) { // a busy machine can miss so short a timeout
		var err error
		s, err = etcd.Open(t.Context(), config)
		return err == nil
	}, "no store can be opened")
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	const ttl = time.Second
	for range 6 {
		leader := c.leader()
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				holdOn(t, s, fmt.Sprint("job", i), ttl, stop)
			})
		}
		c.members[leader].Signal(syscall.SIGSTOP)
		<-time.After(2 * ttl)
		c.members[leader].Signal(syscall.SIGCONT)
		<-time.After(ttl / 2)
		close(stop)
		wg.Wait()
	}
}

// holdOn acquires and renews, and checks that no lease ends before what was granted is over.
func holdOn(t *testing.T, s lease.Store, name string, ttl time.Duration, stop <-chan struct{}) {
	t.Helper()
	var l lease.Lease
	var granted time.Time
	for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
		select {
		case <-stop:
			_ = s.Release(t.Context(), l.Claim)
			return
		default:
		}
		sent := time.Now()
		var next lease.Lease
		var err error
		if l.Token == 0 {
			next, err = s.Acquire(t.Context(), lease.AcquireRequest{Name: name, Holder: "a", TTL: ttl})
		} else {
			next, err = s.Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: ttl})
		}
		if errors.Is(err, lease.ErrExpired) {
			assert.GreaterOrEqual(t, time.Since(granted), ttl, "%s ended early", name)
			l = lease.Lease{}
		}
		if err == nil {
			l, granted = next, sent
		}
	}
}
