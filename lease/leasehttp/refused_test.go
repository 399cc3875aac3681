package leasehttp_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// A refusal of a second sending says nothing of the first, whose lease was granted and whose
// answer was lost: a policy got narrower between them, or the next server is of another version.
func TestARefusalOfASecondSendingIsNotTakenForTheAnswerToTheFirst(t *testing.T) {
	t.Parallel()
	acquires := map[string]func(*leasehttp.Client) error{
		"one request": func(cl *leasehttp.Client) error {
			_, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
			return err
		},
		"several requests": func(cl *leasehttp.Client) error {
			_, err := cl.AcquireWithRetry(t.Context(), "job", "a", leasehttp.AcquireOptions{TTL: servetest.Long})
			return err
		},
	}
	for name, acquire := range acquires {
		for _, lost := range []int{1, 0} { // the control: nothing was granted
			store := leasetest.NewStore()
			s, h := servetest.Serve(t, leaseserver.Config{Store: store})
			narrow := func() {
				assert.NoError(t, s.SetTTLPolicies([]leaseserver.TTLPolicy{{Max: servetest.Long / 2}}))
			}
			transport := &lossy{RoundTripper: http.DefaultTransport.(*http.Transport).Clone(), lose: lost, then: narrow}
			cl := servetest.Client(t, h, leasehttp.ClientConfig{HTTPClient: &http.Client{Transport: transport}})
			if lost == 0 {
				narrow()
				require.ErrorIs(t, acquire(cl), lease.ErrInvalid, name)
				continue
			}
			err := acquire(cl)
			require.ErrorContains(t, err, "outcome unknown", name)
			require.NotErrorIs(t, err, lease.ErrInvalid, name)
			require.ErrorContains(t, err, "out of range", name)
			record, err := store.Get(t.Context(), "job")
			require.NoError(t, err)
			assert.Equal(t, lease.Held, record.State, name)
		}
	}
}

// Another server can take what the first one refuses by now.
func TestAnAcquireThatWasGrantedIsFoundAtTheNextServerIfThisOneRefusesItByNow(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, first := servetest.Serve(t, leaseserver.Config{Store: store})
	_, second := servetest.Serve(t, leaseserver.Config{Store: store, TTLPolicies: []leaseserver.TTLPolicy{{Max: time.Second}}})
	transport := &lossy{RoundTripper: http.DefaultTransport.(*http.Transport).Clone(), lose: 1}
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{first.URL, second.URL}, HTTPClient: &http.Client{Transport: transport}})
	l, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	assert.Equal(t, uint64(1), l.Token)
	require.NoError(t, cl.Release(t.Context(), l.Claim))
}
