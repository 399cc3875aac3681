package main_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/pglatch/pglatch/leader/kubernetes/internal/apitest"
)

// cluster serves the API, and returns the kubeconfig, whose namespace is "here".
func cluster(t *testing.T) (*apitest.Server, string) {
	t.Helper()
	server := apitest.New()
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.Config().Host}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", Namespace: "here"}
	config.CurrentContext = "x"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	return server, file
}

// on is the arguments of an election in that cluster.
func on(file, command string, more ...string) []string {
	return append(strings.Fields("leader "+command+" job --backend kubernetes --kubeconfig "+file), more...)
}

func TestLeadersInAClusterExcludeEachOtherAndAKilledOneIsSucceeded(t *testing.T) {
	t.Parallel()
	server, file := cluster(t)
	watch := start(t, nil, on(file, "watch", "--interval", "20ms", "-o", "jsonl")...)
	watch.Saying(&watch.Stdout, `"led":false`)
	// Long: the first leader keeps it on a machine that is busy, too.
	first := start(t, nil, on(file, "run", "--id", "a", "--lease-duration", "8s", "-c", "echo leads $PGLATCH_KEY $PGLATCH_TERM; exec sleep 300")...)
	first.Saying(&first.Stdout, "leads job 0.1\n")
	watch.Saying(&watch.Stdout, `"identity":"a","term":"0.1"`)
	second := start(t, nil, on(file, "run", "-v", "--id", "b", "--lease-duration", "8s", "-c", "echo leads $PGLATCH_FENCING_TOKEN; exec sleep 300")...)
	second.Saying(&second.Stderr, "state.from=acquiring state.to=follower")
	assert.Empty(t, second.Stdout.String())
	stdout, stderr, code := run(t, nil, on(file, "status")...)
	assert.Zero(t, code, stderr)
	assert.Contains(t, stdout, "job: a leads in term 0.1 since")
	assert.Contains(t, stdout, "Lease here/job")

	first.Signal(syscall.SIGKILL)
	second.Saying(&second.Stdout, "leads 2\n")
	watch.Saying(&watch.Stdout, `"identity":"b","term":"0.2"`)
	second.Signal(syscall.SIGTERM)
	assert.Equal(t, 143, second.Wait(), "the command's own end")
	stdout, _, code = run(t, nil, on(file, "status")...)
	assert.Equal(t, 3, code)
	assert.Contains(t, stdout, "nobody leads")
	assert.Empty(t, *server.Lease("here", "job").Spec.HolderIdentity)
	watch.Signal(syscall.SIGTERM)
	assert.Zero(t, watch.Wait())
}

func TestTheNamespaceIsThatOfTheFlagThePodOrTheKubeconfig(t *testing.T) {
	t.Parallel()
	server, file := cluster(t)
	for _, c := range []struct {
		namespace string
		env       []string
		args      []string
	}{
		{"here", nil, nil},
		{"pod", []string{"POD_NAMESPACE=pod"}, nil},
		{"flag", []string{"POD_NAMESPACE=pod"}, []string{"--kube-namespace", "flag"}},
	} {
		_, stderr, code := run(t, c.env, on(file, "run", append(c.args, "--", "true")...)...)
		assert.Zero(t, code, stderr)
		assert.NotNil(t, server.Lease(c.namespace, "job"), c.namespace)
	}
	_, stderr, code := run(t, []string{"KUBECONFIG=" + file}, "leader", "status", "job", "--backend", "kubernetes")
	assert.Equal(t, 3, code, stderr)
}

func TestMisuseEndsWith64AndNamesTheFlag(t *testing.T) {
	t.Parallel()
	server, file := cluster(t)
	config := "--kubeconfig " + file
	for args, want := range map[string]string{
		"run job --backend kubernetes --lease-duration 1500ms -v " + config:                 "--lease-duration is 1.5s: use whole seconds",
		"run job --backend kubernetes --lease-duration 1500ms " + config + " -- true":       "--lease-duration is 1.5s: use whole seconds",
		"run job --backend kubernetes --no-auto-reacquire --lease-duration 1s1ms " + config: "use whole seconds",
		"run --backend kubernetes " + config:                                                "give one NAME",
		"run Job --backend kubernetes " + config:                                            `NAME is "Job"`,
		"watch job --backend kubernetes --kube-namespace a.b " + config:                     `--kube-namespace is "a.b"`,
		"status job --backend kubernetes":                                                   "--kubeconfig: it is not given",
		"status job --backend kubernetes --kubeconfig /no/such/file":                        "/no/such/file",
		"status job --backend kubernetes --file x " + config:                                "--file is for --backend file: leave it out with --backend kubernetes",
		"status job --backend kubernetes --database-url x " + config:                        "--database-url is for --backend postgres",
		"run 1:100 " + config:          "--kubeconfig is for --backend kubernetes: leave it out with --backend postgres",
		"run 1:100 --kube-namespace x": "--kube-namespace is for --backend kubernetes",
		"run job --backend etcd":       `--backend is "etcd": use one of postgres, lease, file, kubernetes`,
	} {
		_, stderr, code := run(t, nil, append([]string{"leader"}, strings.Fields(args)...)...)
		assert.Equal(t, 64, code, "%s: %s", args, stderr)
		assert.Contains(t, stderr, want, args)
		assert.Contains(t, stderr, "pglatch-kubernetes: ", args)
	}
	assert.Zero(t, server.Count(apitest.Create))
}

func TestAClusterThatCannotBeReachedIsUnavailable(t *testing.T) {
	t.Parallel()
	_, file := cluster(t)
	config, err := clientcmd.LoadFromFile(file)
	require.NoError(t, err)
	config.Clusters["c"].Server = "http://127.0.0.1:1"
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	for _, command := range []string{"status", "watch"} {
		_, stderr, code := run(t, nil, on(file, command)...)
		assert.Equal(t, 69, code, stderr)
	}
}

func TestHelpShowsTheBackendsFlags(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"run", "status", "watch"} {
		stdout, _, code := run(t, nil, "leader", command, "--help")
		assert.Zero(t, code)
		for _, want := range []string{"pglatch-kubernetes leader " + command + " NAME", "postgres, lease, file, kubernetes", "kubernetes: file of the cluster", "kubernetes: namespace of the Lease"} {
			assert.Contains(t, stdout, want)
		}
	}
	stdout, _, _ := run(t, nil, "version")
	assert.True(t, strings.HasPrefix(stdout, "pglatch-kubernetes "), stdout)
}
