package leaseserver_test

import (
	"encoding/json"
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

// The second server stands for one that was restarted, or became active.
func TestAResentReleaseSucceedsAtAnotherServerThoughTheLockIsHeld(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		store lease.Store
		keeps bool
	}{
		"a store that keeps the key":               {leasetest.NewStore(), true},
		"the control: one that is only a Store":    {struct{ lease.Store }{leasetest.NewStore()}, false},
		"by a hand-over to the first of the queue": {leasetest.NewStore(), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, one := servetest.Serve(t, leaseserver.Config{Store: c.store, PollInterval: -1})
			_, two := servetest.Serve(t, leaseserver.Config{Store: c.store, PollInterval: -1})
			holder := servetest.Client(t, one, leasehttp.ClientConfig{})
			l, err := holder.Acquire(t.Context(), servetest.Ask("job", "a"))
			require.NoError(t, err)
			release := func(key string) string {
				text, err := json.Marshal(map[string]any{"owner_id": l.Holder, "lease_id": l.ID, "fencing_token": l.Token, "idempotency_key": key})
				require.NoError(t, err)
				return string(text)
			}
			var next <-chan result
			if name == "by a hand-over to the first of the queue" {
				next = waitInLine(t, first, one, "b", servetest.Bound)
				awaitStanding(t, first, "job")
			}
			require.Equal(t, http.StatusOK, send(t, one, "POST", "/v1/locks/job/release", release("once")).status)
			if next != nil {
				require.NoError(t, (<-next).err)
			} else {
				_, err = holder.Acquire(t.Context(), servetest.Ask("job", "b"))
				require.NoError(t, err)
			}
			for key, keeps := range map[string]bool{"once": c.keeps, "twice": false, "": false} {
				want := http.StatusConflict
				if keeps {
					want = http.StatusOK
				}
				assert.Equal(t, want, send(t, two, "POST", "/v1/locks/job/release", release(key)).status, key)
			}
			record, err := holder.Get(t.Context(), "job")
			require.NoError(t, err)
			assert.Equal(t, "b", record.Holder)
			assert.Equal(t, lease.Held, record.State)
		})
	}
}
