//go:build linux

package kubernetes

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/gobuild"
)

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
