package leaseserver

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease/leasetest"
)

// A forwarder answers before its own HTTP server gives the request up, whatever the times are.
func TestAForwardedRequestIsAnsweredBeforeTheWriteTimeout(t *testing.T) {
	t.Parallel()
	for _, c := range []Config{{}, {MaxWait: time.Hour}, {StoreTimeout: time.Minute}, {StoreTimeout: time.Minute, ReadTimeout: time.Millisecond, MaxWait: time.Millisecond}} {
		c.Store, c.Registry = leasetest.NewStore(), prometheus.NewRegistry()
		s, err := New(c)
		require.NoError(t, err)
		answered := s.ReadTimeout + s.forwardTime(s.MaxWait) + s.StoreTimeout // forwarded in vain, and then asked here
		assert.Greater(t, s.http.WriteTimeout, answered)
		assert.Greater(t, s.http.WriteTimeout, s.ReadTimeout+s.answerTime(s.MaxWait))
	}
}
