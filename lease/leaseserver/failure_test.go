package leaseserver_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func TestAStoreThatFailsIsAnUnknownOutcomeAndItsTextStaysBehind(t *testing.T) {
	t.Parallel()
	store := &servetest.Spy{Store: leasetest.NewStore(), Err: errors.New("password=secret")}
	_, h := servetest.Serve(t, leaseserver.Config{Store: store})
	a := send(t, h, http.MethodPost, "/v1/locks/job/acquire", `{"owner_id":"a","ttl_ms":1000}`)
	assert.Equal(t, http.StatusServiceUnavailable, a.status)
	assert.Contains(t, a.body, "store-unavailable")
	assert.NotContains(t, a.body, "secret")
	assert.Equal(t, "1", a.header.Get("Retry-After"))
	_, err := servetest.Client(t, h, leasehttp.ClientConfig{Resends: -1}).Acquire(t.Context(), servetest.Ask("job", "a"))
	require.ErrorContains(t, err, "outcome unknown")
	require.NotErrorIs(t, err, lease.ErrBusy)
}

func TestAStoreThatIsNotReadyHasDoneNothingForSure(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{lease.ErrNotReady, lease.ErrClosed} {
		_, h := servetest.Serve(t, leaseserver.Config{Store: &servetest.Spy{Store: leasetest.NewStore(), Err: fmt.Errorf("host=secret: %w", failure)}})
		a := send(t, h, http.MethodPost, "/v1/locks/job/acquire", `{"owner_id":"a","ttl_ms":1000}`)
		assert.Equal(t, http.StatusServiceUnavailable, a.status)
		assert.Contains(t, a.body, "store-not-ready")
		assert.NotContains(t, a.body, "secret")
		_, err := servetest.Client(t, h, leasehttp.ClientConfig{}).Acquire(t.Context(), servetest.Ask("job", "a"))
		require.ErrorIs(t, err, lease.ErrNotReady)
	}
}
