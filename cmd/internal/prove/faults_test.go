package prove

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pgdsn"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// Whenever the server falls silent, what it did not answer is unknown. The control, TestAServerThatPretendsIsFoundOut, has
// servers that answer, and are accused.
func TestAServerThatFallsSilentIsAccusedOfNothing(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	dsn := pgtest.DSN(t)
	for _, messages := range []int64{70, 200, 400, inTheCancel} {
		t.Run(fmt.Sprint(messages), func(t *testing.T) {
			t.Parallel()
			var left atomic.Int64
			left.Store(messages)
			silent := lie{
				drop: func(pgproto3.BackendMessage) bool { return left.Add(-1) < 0 },
				cancel: func(_ *pretender, request *pgproto3.CancelRequest) *pgproto3.CancelRequest {
					left.Store(0)
					return request
				},
			}
			config, err := pgdsn.Parse(pretend(t, silent, dsn))
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second) // of the 20
			defer cancel()
			r, err := Run(ctx, config)
			if err != nil {
				require.Error(t, ctx.Err(), "%v", err)
				return // on a busy machine
			}
			known := 0
			for _, p := range r.Proofs {
				assert.Contains(t, []Status{Works, Unknown}, p.Status, "%s: %s", p.Proof, p.Why)
				if p.Status == Works {
					known++
				}
			}
			assert.Less(t, known, len(r.Proofs))
			_, unknown := r.Failed(PartNames())
			assert.NotEmpty(t, unknown)
		})
	}
}

// inTheCancel is so many messages that the silence begins with the first cancel request.
const inTheCancel = 1 << 40

// Two people prove one server. The control: with one key for everybody, each would take the other's lock for a fault.
func TestTwoAtOnceProveOneServer(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	for _, who := range []string{"one", "another"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			for _, p := range report(t, dsn).Proofs {
				assert.Equal(t, Works, p.Status, "%s: %s", p.Proof, p.Why)
			}
		})
	}
	t.Run("control", func(t *testing.T) {
		t.Parallel()
		_, err := pgtest.Connect(t, dsn).Exec(t.Context(), "SELECT pg_advisory_lock($1, 1)", space)
		require.NoError(t, err)
		config, err := pgdsn.Parse(pretend(t, lie{rewrite: [][2]string{{fmt.Sprintf(`%d, \d+`, space), fmt.Sprintf("%d, 1", space)}}}, dsn))
		require.NoError(t, err)
		assert.Equal(t, DoesNot, proveOnly(t, config, exclusion)[exclusion].Status)
	})
}

// The proofs take 36 seconds if each answer takes 0.2 s.
func TestAServerThatIsFarAwayHasMoreTime(t *testing.T) {
	t.Parallel()
	config, err := pgdsn.Parse(pgtest.DSN(t))
	require.NoError(t, err)
	proxy, err := faultproxy.New(t.Context(), fmt.Sprintf("%s:%d", config.Host, config.Port))
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	url, err := proxy.URL(config.ConnString())
	require.NoError(t, err)
	config, err = pgdsn.Parse(url)
	require.NoError(t, err)
	e := &examiner{config: connConfig(config)}
	e.sessions[0], err = e.open(t.Context())
	require.NoError(t, err)
	defer e.closeAll(t.Context())
	near := e.limit(t.Context())
	for range 50 { // on a busy machine, some answers are late
		near = min(near, e.limit(t.Context()))
	}
	proxy.Delay(far / 2) // in each direction
	assert.Equal(t, 60*time.Second, e.limit(t.Context()))
	assert.GreaterOrEqual(t, near, total)
	assert.Less(t, near, 60*time.Second, "the control: a server that is near")
}
