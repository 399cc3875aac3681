package main_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/pglatch/pglatch/internal/test/clitest"
)

// cluster is an API without a Lease. It returns the kubeconfig, whose namespace is "here", and the paths of all requests.
func cluster(t *testing.T) (file string, requests func() []string) {
	t.Helper()
	var mu sync.Mutex
	var paths []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		paths = append(paths, r.Method+" "+r.URL.Path)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	}))
	t.Cleanup(server.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server.URL}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", Namespace: "here"}
	config.CurrentContext = "x"
	file = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	return file, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(paths)
	}
}

func TestTheNamespaceIsThatOfTheFlagThePodOrTheKubeconfig(t *testing.T) {
	t.Parallel()
	file, requests := cluster(t)
	for _, c := range []struct {
		namespace string
		env       []string
		args      []string
	}{
		{"here", nil, []string{"--kubeconfig", file}},
		{"here", []string{"KUBECONFIG=" + file}, nil},
		{"pod", []string{"POD_NAMESPACE=pod"}, []string{"--kubeconfig", file}},
		{"flag", []string{"POD_NAMESPACE=pod"}, []string{"--kubeconfig", file, "--kube-namespace", "flag"}},
	} {
		before := len(requests())
		_, stderr, code := run(t, c.env, append(strings.Fields("leader status job --backend kubernetes"), c.args...)...)
		assert.Equal(t, 3, code, stderr)
		assert.Equal(t, []string{"GET /apis/coordination.k8s.io/v1/namespaces/" + c.namespace + "/leases/job"}, requests()[before:])
	}
}

func TestMisuseEndsWith64AndNamesTheFlag(t *testing.T) {
	t.Parallel()
	file, requests := cluster(t)
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
	assert.Empty(t, requests())
}

func TestAClusterThatCannotBeReachedIsUnavailable(t *testing.T) {
	t.Parallel()
	file, _ := cluster(t)
	config, err := clientcmd.LoadFromFile(file)
	require.NoError(t, err)
	config.Clusters["c"].Server = "http://127.0.0.1:1"
	require.NoError(t, clientcmd.WriteToFile(*config, file))
	for _, command := range []string{"status", "watch"} {
		_, stderr, code := run(t, nil, "leader", command, "job", "--backend", "kubernetes", "--kubeconfig", file)
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

func TestMain(m *testing.M) { clitest.MainOf(m, ".") }

// run runs the program to its end, outside of all clusters, but for what env says.
func run(t *testing.T, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	outside := []string{"HOME=" + t.TempDir(), "KUBECONFIG=", "POD_NAMESPACE=", "KUBERNETES_SERVICE_HOST="}
	return clitest.Run(t, append(outside, env...), args...)
}
