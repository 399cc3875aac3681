//go:build integration

package failover

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
)

func TestARetryOfAnAcquireThatWaitedForTheStandbyIsNotAcknowledgedBeforeTheStandbyHasIt(t *testing.T) {
	t.Parallel()
	p := newPair(t, "on")
	s := newStore(t, p.primary.DSN(""))
	p.stopStreaming()
	r := lease.AcquireRequest{Name: "x", Holder: "a", TTL: longTTL, IdempotencyKey: "once"}
	for i := range 10 { // as a client whose requests have a timeout
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		l, err := s.Acquire(ctx, r)
		cancel()
		if err == nil {
			p.failOver()
			_, err = newStore(t, p.standby.DSN("")).Renew(t.Context(), lease.RenewRequest{Claim: l.Claim, TTL: longTTL})
			require.NoError(t, err, "acknowledged at attempt %d, and lost", i+1)
		}
	}
}
