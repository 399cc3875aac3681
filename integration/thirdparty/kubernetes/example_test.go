//go:build linux

package kubernetes

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/gobuild"
	"github.com/pglatch/pglatch/internal/test/proctest"
)

// A replica is a process of examples/thirdparty/kubernetes.
type replica struct {
	*proctest.Process
	t       *testing.T
	address string
}

var working = regexp.MustCompile(`msg=working term=(\S+)`)

func startReplica(t *testing.T, binary, lease, pod string) *replica {
	t.Helper()
	cmd := proctest.Command(t, binary, "-kubeconfig", cluster.kubeconfig, "-lease", lease,
		"-listen", "127.0.0.1:0", "-lease-duration", "6s", "-interval", "20ms")
	cmd.Env = append(os.Environ(), "POD_NAME="+pod, "POD_NAMESPACE="+cluster.namespace)
	p := proctest.Start(t, cmd)
	return &replica{p, t, p.Match(&p.Stderr, `msg=listening address=(\S+)`)[1]}
}

// end sends a signal, waits until the process is gone, and returns its exit code.
func (r *replica) end(s os.Signal) int {
	r.Signal(s)
	return r.Wait()
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
	await.Until(r.t, patience, func() bool { return r.status("/leader") == http.StatusOK && len(r.worked()) > 0 })
}

// worked returns the terms of its work.
func (r *replica) worked() (terms []string) {
	for _, m := range working.FindAllStringSubmatch(r.Stderr.String(), -1) {
		terms = append(terms, m[1])
	}
	return terms
}

func TestTheExampleHasOneLeader(t *testing.T) {
	binary, lease := filepath.Join(t.TempDir(), "example"), leaseName()
	require.NoError(t, gobuild.Program(t.Context(), "../../../examples/thirdparty/kubernetes", binary))

	first := startReplica(t, binary, lease, "pod-1")
	first.awaitLeader()
	second := startReplica(t, binary, lease, "pod-2")
	assert.Equal(t, http.StatusOK, second.status("/livez"))
	await.Until(t, patience, func() bool { return second.status("/readyz") == http.StatusOK })
	assert.Equal(t, http.StatusServiceUnavailable, second.status("/leader"))
	assert.Empty(t, second.worked())

	killed := time.Now()
	require.Equal(t, 128+9, first.end(syscall.SIGKILL))
	second.awaitLeader()
	t.Logf("the second leads %v after a kill -9 of the first, with a lease of 6s", time.Since(killed).Round(time.Millisecond))

	third := startReplica(t, binary, lease, "pod-2") // the name of a pod that leads
	await.Until(t, patience, func() bool { return third.status("/readyz") == http.StatusOK })
	stopped := time.Now()
	require.Zero(t, second.end(syscall.SIGTERM))
	third.awaitLeader()
	t.Logf("the third leads %v after a SIGTERM of the second", time.Since(stopped).Round(time.Millisecond))
	for want, r := range map[string]*replica{"0.1": first, "0.2": second, "0.3": third} {
		for _, term := range r.worked() {
			require.Equal(t, want, term)
		}
	}
	require.Zero(t, third.end(syscall.SIGTERM))
	last, err := leases(t).Get(t.Context(), lease, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Empty(t, *last.Spec.HolderIdentity)
}

// command builds pglatch-kubernetes.
func command(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "pglatch-kubernetes")
	require.NoError(t, gobuild.Program(t.Context(), "../../../cmd/pglatch-kubernetes", binary))
	return binary
}

func TestLeadersInAClusterExcludeEachOtherAndAKilledOneIsSucceeded(t *testing.T) {
	binary, name := command(t), leaseName()
	start := func(command string, more ...string) *clitest.Program {
		args := strings.Fields("leader " + command + " " + name + " --backend kubernetes --kubeconfig " + cluster.kubeconfig + " --kube-namespace " + cluster.namespace)
		return clitest.StartCommand(t, nil, binary, append(args, more...)...)
	}
	watch := start("watch", "--interval", "20ms", "-o", "jsonl")
	watch.Saying(&watch.Stdout, `"led":false`)
	// Long: the first leader keeps it on a machine that is busy, too.
	first := start("run", "--id", "a", "--lease-duration", "8s", "-c", "echo leads $PGLATCH_KEY $PGLATCH_TERM; exec sleep 300")
	first.Saying(&first.Stdout, "leads "+name+" 0.1\n")
	watch.Saying(&watch.Stdout, `"identity":"a","term":"0.1"`)
	second := start("run", "-v", "--id", "b", "--lease-duration", "8s", "-c", "echo leads $PGLATCH_FENCING_TOKEN; exec sleep 300")
	second.Saying(&second.Stderr, "state.from=acquiring state.to=follower")
	assert.Empty(t, second.Stdout.String())
	status := start("status")
	assert.Zero(t, status.Wait(), status.Stderr.String())
	assert.Contains(t, status.Stdout.String(), name+": a leads in term 0.1 since")
	assert.Contains(t, status.Stdout.String(), "Lease "+cluster.namespace+"/"+name)

	first.Signal(syscall.SIGKILL)
	second.Saying(&second.Stdout, "leads 2\n")
	watch.Saying(&watch.Stdout, `"identity":"b","term":"0.2"`)
	second.Signal(syscall.SIGTERM)
	assert.Equal(t, 143, second.Wait(), "the command's own end")
	status = start("status")
	assert.Equal(t, 3, status.Wait())
	assert.Contains(t, status.Stdout.String(), "nobody leads")
	lease, err := leases(t).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	assert.Empty(t, *lease.Spec.HolderIdentity)
	watch.Signal(syscall.SIGTERM)
	assert.Zero(t, watch.Wait())
}
