package advisory_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// A program's connection hooks may ignore their context.
func TestCloseDoesNotWaitForWhatHangsInConnecting(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		for name, config := range map[string]func(cc *pgx.ConnConfig, hang func() error) advisory.Config{
			"DialFunc": func(cc *pgx.ConnConfig, hang func() error) advisory.Config {
				cc.DialFunc = func(_ context.Context, network, addr string) (net.Conn, error) {
					if err := hang(); err != nil {
						return nil, err
					}
					return net.Dial(network, addr)
				}
				return advisory.Config{ConnConfig: cc}
			},
			"BeforeConnect": func(cc *pgx.ConnConfig, hang func() error) advisory.Config {
				return advisory.Config{ConnConfig: cc, BeforeConnect: func(context.Context, *pgx.ConnConfig) error { return hang() }}
			},
		} {
			cc, err := pgx.ParseConfig(pgtest.DSN(t))
			require.NoError(t, err)
			var hangs atomic.Bool
			hung, release := make(chan struct{}, 100), make(chan struct{})
			l := open(t, config(cc, func() error {
				if !hangs.Load() {
					return nil
				}
				hung <- struct{}{}
				<-release
				return errors.New("released")
			}))
			lock, err := l.Acquire(t.Context(), agents.ID(1))
			require.NoError(t, err)
			hangs.Store(true)
			failed := make(chan error, 3)
			for i := range int64(3) { // one at least needs a connection
				go func() {
					lock, err := l.Acquire(t.Context(), agents.ID(2+i))
					if err == nil {
						<-lock.Lost()
						err = lock.Release()
					}
					failed <- err
				}()
			}
			<-hung
			closed := make(chan struct{})
			go func() {
				l.Close()
				close(closed)
			}()
			select {
			case <-closed:
			case <-time.After(time.Minute):
				assert.Fail(t, "Close waits for "+name)
			}
			close(release)
			for range 3 {
				assert.ErrorIs(t, <-failed, advisory.ErrClosed)
			}
			assert.ErrorIs(t, lock.Release(), advisory.ErrLost)
		}
	})
}

func TestAnApplicationNameWithAZeroByteIsRefused(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T) {
		t.Helper()
		cc, err := pgx.ParseConfig(pgtest.DSN(t))
		require.NoError(t, err)
		cc.RuntimeParams["application_name"] = "a\x00b"
		for _, config := range []advisory.Config{{DSN: pgtest.DSN(t), ApplicationName: "a\x00b"}, {ConnConfig: cc}} {
			_, err := advisory.Open(t.Context(), config)
			e, ok := errors.AsType[*advisory.ConfigError](err)
			require.True(t, ok, "%v", err)
			assert.Contains(t, e.Error(), `"a\x00b"`)
		}
	})
}
