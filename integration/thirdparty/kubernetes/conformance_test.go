//go:build linux

package kubernetes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/kubernetes"
	"github.com/pglatch/pglatch/leader/leadertest"
)

func TestTheBackendConforms(t *testing.T) {
	leadertest.Run(t, leadertest.Harness{
		TTL: 2 * time.Second,
		New: func(t *testing.T) func() driver.Backend {
			t.Helper()
			name := leaseName()
			return func() driver.Backend {
				b, err := kubernetes.NewFromConfig(cluster.config, cluster.namespace, name)
				require.NoError(t, err)
				return b
			}
		},
	})
}
