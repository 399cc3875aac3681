//go:build linux

package integration

import (
	"bufio"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A replica is a process of examples/kubernetes.
type replica struct {
	t       *testing.T
	cmd     *exec.Cmd
	address string
	done    chan struct{} // closed when it has logged its last

	mu    sync.Mutex
	terms []string // of its work
}

var (
	listening = regexp.MustCompile(`msg=listening address=(\S+)`)
	working   = regexp.MustCompile(`msg=working term=(\S+)`)
)

func startReplica(t *testing.T, binary, lease, pod string) *replica {
	t.Helper()
	r := &replica{t: t, done: make(chan struct{})}
	r.cmd = exec.CommandContext(context.Background(), binary, "-kubeconfig", cluster.kubeconfig, "-lease", lease,
		"-listen", "127.0.0.1:0", "-lease-duration", "6s", "-interval", "20ms")
	r.cmd.Env = append(os.Environ(), "POD_NAME="+pod, "POD_NAMESPACE="+cluster.namespace)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := r.cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, r.cmd.Start())
	address := make(chan string, 1)
	go func() {
		defer close(r.done)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			if m := listening.FindStringSubmatch(scanner.Text()); m != nil {
				address <- m[1]
			}
			if m := working.FindStringSubmatch(scanner.Text()); m != nil {
				r.mu.Lock()
				r.terms = append(r.terms, m[1])
				r.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() { _ = r.end(syscall.SIGKILL) })
	select {
	case r.address = <-address:
	case <-time.After(patience):
		require.Fail(t, "the example does not start")
	}
	return r
}

// end sends a signal and waits until the process is gone.
func (r *replica) end(s os.Signal) error {
	_ = r.cmd.Process.Signal(s) // it may be gone
	<-r.done
	return r.cmd.Wait()
}

// status is the answer of an endpoint.
func (r *replica) status(path string) int {
	request, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://"+r.address+path, nil)
	require.NoError(r.t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(r.t, err)
	_ = response.Body.Close()
	return response.StatusCode
}

// awaitLeader waits until the replica leads and works.
func (r *replica) awaitLeader() {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return r.status("/leader") == http.StatusOK && len(r.worked()) > 0 }, patience, 10*time.Millisecond)
}

func (r *replica) worked() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.terms...)
}

func TestTheExampleHasOneLeader(t *testing.T) {
	binary, lease := filepath.Join(t.TempDir(), "example"), leaseName()
	build := exec.CommandContext(t.Context(), "go", "build", "-C", "../../../examples/kubernetes", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))

	first := startReplica(t, binary, lease, "pod-1")
	first.awaitLeader()
	second := startReplica(t, binary, lease, "pod-2")
	assert.Equal(t, http.StatusOK, second.status("/livez"))
	require.Eventually(t, func() bool { return second.status("/readyz") == http.StatusOK }, patience, 10*time.Millisecond)
	assert.Equal(t, http.StatusServiceUnavailable, second.status("/leader"))
	assert.Empty(t, second.worked())

	killed := time.Now()
	require.Error(t, first.end(syscall.SIGKILL))
	second.awaitLeader()
	t.Logf("the second leads %v after a kill -9 of the first, with a lease of 6s", time.Since(killed).Round(time.Millisecond))

	third := startReplica(t, binary, lease, "pod-2") // the name of a pod that leads
	require.Eventually(t, func() bool { return third.status("/readyz") == http.StatusOK }, patience, 10*time.Millisecond)
	stopped := time.Now()
	require.NoError(t, second.end(syscall.SIGTERM))
	third.awaitLeader()
	t.Logf("the third leads %v after a SIGTERM of the second", time.Since(stopped).Round(time.Millisecond))
	for want, r := range map[string]*replica{"0.1": first, "0.2": second, "0.3": third} {
		for _, term := range r.worked() {
			require.Equal(t, want, term)
		}
	}
	require.NoError(t, third.end(syscall.SIGTERM))
	last, err := leases(t).Get(t.Context(), lease, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Empty(t, *last.Spec.HolderIdentity)
}
