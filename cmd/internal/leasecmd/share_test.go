package leasecmd_test

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/internal/test/sharetest"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/shared"
)

// A killing client kills the first server when so many shares were granted.
type killing struct {
	sharetest.Remote
	kill func()
	left *atomic.Int64
}

func (k killing) Acquire(ctx context.Context, r shared.Request, wait time.Duration) (shared.Share, error) {
	s, err := k.Remote.Acquire(ctx, r, wait)
	if err == nil && k.left.Add(-1) == 0 {
		k.kill()
	}
	return s, err
}

func TestSlotsAreSharedWhileAServerIsKilled(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	p := newPair(t)
	client := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: p.urls})
	var left atomic.Int64
	left.Store(8)
	crowd := sharetest.Crowd{Clients: 6, Turns: 3, Slots: 2, TTL: time.Second, Writers: true}
	shares := crowd.Run(t.Context(), t, func(int) sharetest.Client {
		return killing{sharetest.Remote{Client: client}, func() { p.first.Signal(syscall.SIGKILL) }, &left}
	})
	assert.Greater(t, shares, 8, "the other server goes on")
}
