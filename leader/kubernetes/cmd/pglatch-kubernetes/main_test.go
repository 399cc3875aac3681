package main_test

import (
	"testing"

	"github.com/pglatch/pglatch/internal/test/clitest"
)

func TestMain(m *testing.M) { clitest.MainOf(m, ".") }

// start starts the program outside of all clusters, but for what env says.
func start(t *testing.T, env []string, args ...string) *clitest.Program {
	t.Helper()
	return clitest.Start(t, outside(t, env), args...)
}

// run runs the program to its end.
func run(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return clitest.Run(t, outside(t, env), args...)
}

func outside(t *testing.T, env []string) []string {
	t.Helper()
	return append([]string{"HOME=" + t.TempDir(), "KUBECONFIG=", "POD_NAMESPACE=", "KUBERNETES_SERVICE_HOST="}, env...)
}
