//go:build linux

package integration

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/kubernetes"
	"github.com/pglatch/pglatch/leader/leadertest"
)

func TestTheBackendConforms(t *testing.T) {
	leadertest.Run(t, leadertest.Harness{
		TTL: 2 * time.Second,
		New: func(t *testing.T) func() leader.Backend {
			t.Helper()
			name := leaseName()
			return func() leader.Backend {
				b, err := kubernetes.NewFromConfig(cluster.config, cluster.namespace, name)
				require.NoError(t, err)
				return b
			}
		},
	})
}
