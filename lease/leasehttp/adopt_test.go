package leasehttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/internal/test/servetest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// A state is what a holder writes down to survive its own death.
type state struct{ Name, Owner, ID string }

const (
	holderServer = "LEASEHTTP_HOLDER_SERVER"
	holderState  = "LEASEHTTP_HOLDER_STATE"
)

// It is a process of TestAHolderThatWasKilledTakesUpItsLeaseAgain.
func TestAHolderThatIsKilled(t *testing.T) {
	url := os.Getenv(holderServer)
	if url == "" {
		t.Skip("TestAHolderThatWasKilledTakesUpItsLeaseAgain runs it")
	}
	cl := servetest.Client(t, nil, leasehttp.ClientConfig{BaseURLs: []string{url}})
	l, err := cl.AcquireWithRetry(t.Context(), "job", "worker", leasehttp.AcquireOptions{TTL: servetest.Long, Metadata: map[string]string{"part": "7"}})
	require.NoError(t, err)
	data, err := json.Marshal(state{"job", "worker", l.Claim().ID})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(os.Getenv(holderState), data, 0o600))
	work, _ := cl.StartHeartbeat(t.Context(), l, leasehttp.HeartbeatOptions{})
	fmt.Printf("\nholds %d\n", l.FencingToken())
	<-work.Done()
}

func TestAHolderThatWasKilledTakesUpItsLeaseAgain(t *testing.T) {
	t.Parallel()
	store := leasetest.NewStore()
	_, h := servetest.Serve(t, leaseserver.Config{Store: store})
	file := filepath.Join(t.TempDir(), "state")
	p := proctest.Tests(t, "^TestAHolderThatIsKilled$", holderServer+"="+h.URL, holderState+"="+file)
	var token uint64
	_, err := fmt.Sscanf(p.Says("holds"), "holds %d", &token)
	require.NoError(t, err)
	p.Kill()
	require.Equal(t, 128+9, p.Wait(), "it lived until then")

	cl := servetest.Client(t, h, leasehttp.ClientConfig{})
	_, err = cl.Acquire(t.Context(), servetest.Ask("job", "worker"))
	require.ErrorIs(t, err, lease.ErrHeld, "the control: who acquires anew waits for the end of its own lease")
	var saved state
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(data, &saved))
	before, err := store.Get(t.Context(), "job")
	require.NoError(t, err)
	l, err := cl.Adopt(t.Context(), saved.Name, saved.Owner, saved.ID)
	require.NoError(t, err)
	after, err := store.Get(t.Context(), "job")
	require.NoError(t, err)
	assert.Equal(t, before.Version, after.Version, "nothing is prolonged")
	assert.Equal(t, token, l.FencingToken())
	assert.Equal(t, map[string]string{"part": "7"}, l.Last().Metadata)
	assert.Positive(t, l.Remaining())
	assert.LessOrEqual(t, l.Remaining(), servetest.Long*9/10, "the margin is a tenth")

	work, _ := cl.StartHeartbeat(t.Context(), l, leasehttp.HeartbeatOptions{Interval: time.Millisecond})
	await.Until(t, await.Soon, func() bool {
		record, err := store.Get(t.Context(), "job")
		return err == nil && record.Version > before.Version
	})
	assert.Equal(t, token, leasehttp.FencingToken(work))
	require.NoError(t, cl.ReleaseOnce(t.Context(), l))
	_, err = cl.Adopt(t.Context(), saved.Name, saved.Owner, saved.ID)
	require.ErrorIs(t, err, lease.ErrStale)
}

func TestALeaseIsAdoptedByItsHolderAndIDAlone(t *testing.T) {
	t.Parallel()
	cl, transport := lossyClient(t, leasetest.NewStore(), leasehttp.ClientConfig{})
	l, err := cl.Acquire(t.Context(), servetest.Ask("job", "a"))
	require.NoError(t, err)
	transport.lose = 2
	adopted, err := cl.Adopt(t.Context(), "job", "a", l.ID)
	require.NoError(t, err, "what changes nothing is asked again")
	assert.Equal(t, l.Claim, adopted.Claim())
	for want, c := range map[error]lease.Claim{
		lease.ErrStale:    {Name: "job", Holder: "a", ID: "x"},
		lease.ErrNotFound: {Name: "other", Holder: "a", ID: l.ID},
		lease.ErrInvalid:  {Name: "job", Holder: "a"},
	} {
		_, err = cl.Adopt(t.Context(), c.Name, c.Holder, c.ID)
		require.ErrorIs(t, err, want)
	}
	short, err := cl.Acquire(t.Context(), lease.AcquireRequest{Name: "short", Holder: "a", TTL: lease.MinTTL})
	require.NoError(t, err)
	await.Until(t, await.Soon, func() bool {
		_, err = cl.Adopt(context.WithoutCancel(t.Context()), "short", "a", short.ID)
		return err != nil
	})
	require.ErrorIs(t, err, lease.ErrExpired)
}
