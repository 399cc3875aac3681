package main

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/pglatch/pglatch/leader/kubernetes"
)

// manifests are the objects of deploy.yaml.
type manifests struct {
	account    corev1.ServiceAccount
	role       rbacv1.Role
	binding    rbacv1.RoleBinding
	deployment appsv1.Deployment
	service    corev1.Service
}

func read(t *testing.T) *manifests {
	t.Helper()
	file, err := os.ReadFile("deploy.yaml")
	require.NoError(t, err)
	var m manifests
	objects := map[string]any{
		"v1 ServiceAccount":                        &m.account,
		"rbac.authorization.k8s.io/v1 Role":        &m.role,
		"rbac.authorization.k8s.io/v1 RoleBinding": &m.binding,
		"apps/v1 Deployment":                       &m.deployment,
		"v1 Service":                               &m.service,
	}
	for document := range bytes.SplitSeq(file, []byte("\n---\n")) {
		var kind struct{ APIVersion, Kind string }
		require.NoError(t, yaml.Unmarshal(document, &kind))
		name := kind.APIVersion + " " + kind.Kind
		require.Contains(t, objects, name, "once")
		require.NoError(t, yaml.UnmarshalStrict(document, objects[name]), name)
		delete(objects, name)
	}
	require.Empty(t, objects)
	return &m
}

func TestTheManifestsFitEachOther(t *testing.T) {
	t.Parallel()
	m := read(t)
	pod := m.deployment.Spec.Template
	assert.Equal(t, m.account.Name, pod.Spec.ServiceAccountName)
	assert.Equal(t, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: m.role.Name}, m.binding.RoleRef)
	assert.Equal(t, []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: m.account.Name}}, m.binding.Subjects)
	assert.Equal(t, m.deployment.Spec.Selector.MatchLabels, pod.Labels)
	assert.Equal(t, pod.Labels, m.service.Spec.Selector)
	require.Len(t, pod.Spec.Containers, 1)
	ports := pod.Spec.Containers[0].Ports
	require.Len(t, ports, 1)
	assert.Equal(t, ports[0].Name, m.service.Spec.Ports[0].TargetPort.String())
}

func TestTheManifestsFitTheProgram(t *testing.T) {
	t.Parallel()
	m := read(t)
	container := m.deployment.Spec.Template.Spec.Containers[0]
	o := parse(container.Args)
	assert.Empty(t, o.kubeconfig)
	assert.Equal(t, ":8080", o.listen)
	assert.EqualValues(t, 8080, container.Ports[0].ContainerPort)
	assert.Equal(t, "/livez", container.LivenessProbe.HTTPGet.Path)
	assert.Equal(t, "/leader", container.ReadinessProbe.HTTPGet.Path)
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		assert.Equal(t, container.Ports[0].Name, probe.HTTPGet.Port.String())
	}
	fields := make(map[string]string)
	for _, v := range container.Env {
		fields[v.Name] = v.ValueFrom.FieldRef.FieldPath
	}
	assert.Equal(t, map[string]string{"POD_NAME": "metadata.name", kubernetes.NamespaceVariable: "metadata.namespace"}, fields)

	leases := rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}}
	create, rest := leases, leases
	create.Verbs = []string{"create"}
	rest.Verbs, rest.ResourceNames = []string{"get", "update", "watch"}, []string{o.lease}
	assert.Equal(t, []rbacv1.PolicyRule{create, rest}, m.role.Rules)
}

func TestTheImageIsTheOneThatIsDeployed(t *testing.T) {
	t.Parallel()
	pod := read(t).deployment.Spec.Template.Spec
	container := pod.Containers[0]
	assert.Equal(t, corev1.PullIfNotPresent, container.ImagePullPolicy, "latest would be pulled from a registry")
	uid := *container.SecurityContext.RunAsUser
	assert.Positive(t, uid)
	assert.EqualValues(t, 65532, uid)
	manual, err := os.ReadFile("README.md")
	require.NoError(t, err)
	containerfile, err := os.ReadFile("Containerfile")
	require.NoError(t, err)
	assert.Equal(t, "FROM scratch\nCOPY pglatch-example /pglatch-example\nUSER 65532:65532\nENTRYPOINT [\"/pglatch-example\"]\n",
		regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(string(containerfile), ""))
	for _, text := range []string{string(manual), string(containerfile)} {
		assert.Contains(t, text, "podman build -t "+container.Image+" examples/thirdparty/kubernetes")
		assert.Contains(t, text, "CGO_ENABLED=0 go build -C examples/thirdparty/kubernetes -trimpath -o pglatch-example .")
	}
}

// The binary is copied into an empty image and must run there, without a loader and without libraries.
func TestTheBinaryOfTheImageIsStatic(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "pglatch-example")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", binary, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	output, err := build.CombinedOutput()
	require.NoError(t, err, string(output))
	file, err := elf.Open(binary)
	require.NoError(t, err)
	defer file.Close()
	for _, p := range file.Progs {
		assert.NotEqual(t, elf.PT_INTERP, p.Type, "it needs a loader")
		assert.NotEqual(t, elf.PT_DYNAMIC, p.Type, "it needs libraries")
	}
}

// holderOf runs the program on an API that has no Lease, and returns the holder of the
// Lease that it creates.
func holderOf(t *testing.T) string {
	t.Helper()
	holders := make(chan string, 10)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var lease coordinationv1.Lease
		if r.Method == http.MethodGet || json.NewDecoder(r.Body).Decode(&lease) != nil {
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
			return
		}
		holders <- *lease.Spec.HolderIdentity
		lease.ResourceVersion = "1"
		_ = json.NewEncoder(w).Encode(lease)
	}))
	defer api.Close()
	kubeconfig := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"clusters": [{"name": "c", "cluster": {"server": %q}}],
		"contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}`, api.URL), 0o600))
	o := parse([]string{"-kubeconfig", kubeconfig, "-listen", "127.0.0.1:0"})
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o, slog.New(slog.DiscardHandler)) }()
	var holder string
	select {
	case holder = <-holders:
	case <-ctx.Done():
		require.Fail(t, "nobody stood for election")
	}
	stop()
	assert.NoError(t, <-ended)
	return holder
}

// suffix matches what the backend adds, so that no two processes have the same identity.
const suffix = `_[a-z2-7]{16}$`

func TestTheHolderIsThePodOrTheHostWhereNoPodIsNamed(t *testing.T) {
	t.Setenv("POD_NAME", "example-7d4b9c-x2x4z")
	assert.Regexp(t, `^example-7d4b9c-x2x4z`+suffix, holderOf(t))
	host, err := os.Hostname()
	require.NoError(t, err)
	t.Setenv("POD_NAME", "")
	assert.Regexp(t, `^`+host+suffix, holderOf(t))
}
