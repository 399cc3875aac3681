package main_test

import (
	"testing"

	"github.com/pglatch/pglatch/internal/test/clitest"
)

func TestMain(m *testing.M) { clitest.MainOf(m, ".") }

// run runs the program to its end, outside of all clusters, but for what env says.
func run(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	outside := []string{"HOME=" + t.TempDir(), "KUBECONFIG=", "POD_NAMESPACE=", "KUBERNETES_SERVICE_HOST="}
	return clitest.Run(t, append(outside, env...), args...)
}
