package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// A renewal that is begun beside a claim has as much time as the claim, and waits for it.
func TestAClaimLeavesTimeToTheRenewalBehindIt(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]time.Duration{
		500 * time.Millisecond: 125 * time.Millisecond, 10 * time.Second: 2500 * time.Millisecond, time.Hour: 3 * time.Second,
	} {
		o := &lockSession{ttl: ttl}
		assert.Equal(t, want, o.patience(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), ttl/10)
		assert.LessOrEqual(t, o.patience(ctx), min(ttl/10*3/4, want))
		cancel()
	}
}
