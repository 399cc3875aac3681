//go:build linux

package kubernetes

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/yaml"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/proctest"
)

const deployDir = "../../../deploy"

// documents are the objects of a file of deploy/kubernetes.
func documents(t *testing.T, file string) [][]byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(deployDir, "kubernetes", file))
	require.NoError(t, err)
	return bytes.Split(content, []byte("\n---\n"))
}

// object decodes the one object of a kind in a file, in which no field is unknown or twice.
func object[T any](t *testing.T, file, kind string) *T {
	t.Helper()
	var found *T
	for _, document := range documents(t, file) {
		var meta metav1.TypeMeta
		require.NoError(t, yaml.Unmarshal(document, &meta))
		if meta.Kind == kind {
			require.Nil(t, found, "%s has two of %s", file, kind)
			found = new(T)
			require.NoError(t, yaml.UnmarshalStrict(document, found), "%s of %s", kind, file)
		}
	}
	require.NotNil(t, found, "%s of %s", kind, file)
	return found
}

// typed decodes a document as the API's own type of its kind.
func typed(t *testing.T, document []byte) (runtime.Object, schema.GroupVersionKind) {
	t.Helper()
	decoded, kind, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
	require.NoError(t, err, string(document))
	return decoded, *kind
}

// What kubectl apply --server-side would say: a field that no schema of the API's types has is an error. An
// API that serves the types says it by itself, in a dry run.
func TestTheManifestsOfDeployAreWhatTheAPITakes(t *testing.T) {
	converter := applyconfigurations.NewTypeConverter(scheme.Scheme)
	apply := applier(t)
	files, err := filepath.Glob(filepath.Join(deployDir, "kubernetes", "*.yaml"))
	require.NoError(t, err)
	require.Len(t, files, 3)
	for _, file := range files {
		for _, document := range documents(t, filepath.Base(file)) {
			decoded, kind := typed(t, document)
			require.NoError(t, yaml.UnmarshalStrict(document, decoded), "%s: %s", file, kind)
			var object unstructured.Unstructured
			require.NoError(t, yaml.Unmarshal(document, &object.Object))
			_, err := converter.ObjectToTyped(&object)
			require.NoError(t, err, "%s: %s", file, kind)
			require.NoError(t, apply(t.Context(), &object), "%s: %s", file, kind)

			require.NoError(t, unstructured.SetNestedField(object.Object, "x", "metadata", "lables"))
			_, err = converter.ObjectToTyped(&object)
			require.Error(t, err, "a field that is misspelled")
		}
	}
}

// applier tries an object in a dry run, if the API serves its type.
func applier(t *testing.T) func(context.Context, *unstructured.Unstructured) error {
	t.Helper()
	config := plain(cluster.config)
	found, err := discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	groups, err := restmapper.GetAPIGroupResources(found)
	if apierrors.IsNotFound(err) { // the library, which has no built-in types, tells of none
		return func(context.Context, *unstructured.Unstructured) error { return nil }
	}
	require.NoError(t, err)
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return func(ctx context.Context, object *unstructured.Unstructured) error {
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil {
			return fmt.Errorf("%s does not serve %s: %w", cluster.name, kind, err)
		}
		content, err := json.Marshal(object)
		if err != nil {
			return err
		}
		_, err = client.Resource(mapping.Resource).Namespace(cluster.namespace).Patch(ctx, object.GetName(), types.ApplyPatchType, content, metav1.PatchOptions{
			DryRun: []string{metav1.DryRunAll}, FieldManager: "pglatch-test", FieldValidation: metav1.FieldValidationStrict,
		})
		if apierrors.IsForbidden(err) {
			t.Log(err)
			return nil
		}
		return err
	}
}

func TestTheManifestsOfDeployFitEachOther(t *testing.T) {
	locks, monitor := object[appsv1.Deployment](t, "locks.yaml", "Deployment"), object[appsv1.Deployment](t, "monitor.yaml", "Deployment")
	for _, deployment := range []*appsv1.Deployment{locks, monitor} {
		pod := deployment.Spec.Template
		assert.Equal(t, deployment.Spec.Selector.MatchLabels, pod.Labels)
		assert.False(t, *pod.Spec.AutomountServiceAccountToken)
		require.Len(t, pod.Spec.Containers, 1)
		container := pod.Spec.Containers[0]
		assert.True(t, *pod.Spec.SecurityContext.RunAsNonRoot)
		assert.EqualValues(t, nobody, *pod.Spec.SecurityContext.RunAsUser)
		assert.Equal(t, *pod.Spec.SecurityContext.RunAsUser, *pod.Spec.SecurityContext.FSGroup)
		assert.True(t, *container.SecurityContext.ReadOnlyRootFilesystem)
		assert.False(t, *container.SecurityContext.AllowPrivilegeEscalation)
		assert.Equal(t, corev1.PullIfNotPresent, container.ImagePullPolicy, "latest would be pulled from a registry")
		var volumes, mounts []string
		for _, v := range pod.Spec.Volumes {
			volumes = append(volumes, v.Name)
		}
		for _, m := range container.VolumeMounts {
			mounts = append(mounts, m.Name)
		}
		assert.Equal(t, volumes, mounts)
	}
	service, budget := object[corev1.Service](t, "locks.yaml", "Service"), object[policyv1.PodDisruptionBudget](t, "locks.yaml", "PodDisruptionBudget")
	assert.Equal(t, locks.Spec.Template.Labels, service.Spec.Selector)
	assert.Equal(t, locks.Spec.Selector, budget.Spec.Selector)
	assert.Greater(t, int(*locks.Spec.Replicas), budget.Spec.MaxUnavailable.IntValue(), "a drain leaves a server")
	container := locks.Spec.Template.Spec.Containers[0]
	require.Len(t, container.Ports, 1)
	assert.Equal(t, container.Ports[0].Name, service.Spec.Ports[0].TargetPort.String())
	assert.Contains(t, container.Args, "--listen=:8443")
	assert.EqualValues(t, 8443, container.Ports[0].ContainerPort)
	for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
		assert.Equal(t, container.Ports[0].Name, probe.HTTPGet.Port.String())
	}
	account, role, binding := object[corev1.ServiceAccount](t, "election.yaml", "ServiceAccount"), object[rbacv1.Role](t, "election.yaml", "Role"), object[rbacv1.RoleBinding](t, "election.yaml", "RoleBinding")
	assert.Equal(t, rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}, binding.RoleRef)
	assert.Equal(t, []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account.Name}}, binding.Subjects)
}

// A composeFile is what deploy/compose.yaml uses of the Compose Specification.
type composeFile struct {
	Services map[string]struct {
		Image       string            `json:"image,omitempty"`
		Environment map[string]string `json:"environment,omitempty"`
		Healthcheck *struct {
			Test              []string `json:"test"`
			Interval, Timeout string
			Retries           int
		} `json:"healthcheck,omitempty"`
		Build *struct {
			Context, Dockerfile string
			Args                map[string]string
		} `json:"build,omitempty"`
		Command   []string `json:"command,omitempty"`
		DependsOn map[string]struct {
			Condition string
		} `json:"depends_on,omitempty"`
	} `json:"services"`
}

func TestTheComposeFileStartsTheDemoBesideADatabase(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(deployDir, "compose.yaml"))
	require.NoError(t, err)
	var compose composeFile
	require.NoError(t, yaml.UnmarshalStrict(content, &compose))
	demo := compose.Services["demo"]
	for name, on := range demo.DependsOn {
		assert.Equal(t, "service_healthy", on.Condition)
		require.NotNil(t, compose.Services[name].Healthcheck)
		assert.Contains(t, demo.Environment["PGLATCH_TEST_DATABASE_URL"], "@"+name+"/")
	}
	assert.Len(t, demo.DependsOn, 1)
	assert.FileExists(t, filepath.Join(deployDir, demo.Build.Context, demo.Build.Dockerfile))
	assert.Equal(t, "demo", demo.Build.Args["PROGRAM"])
	assert.True(t, slices.Contains(demo.Command, "-once"), "it listens on loopback addresses, so nobody can look at its pages")
}

// restricted is a way to the API with the rights of one Role and no others.
type restricted struct {
	kubeconfig string
	mu         sync.Mutex
	used       map[string]bool // verbs
	denied     chan string     // verbs
	watched    chan struct{}   // closed at the first watch that is allowed
}

func restrict(t *testing.T, role *rbacv1.Role) *restricted {
	t.Helper()
	target, err := url.Parse(cluster.config.Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(plain(cluster.config))
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport, proxy.FlushInterval = transport, -1
	infos := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	r := &restricted{used: make(map[string]bool), denied: make(chan string, 100), watched: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		info, err := infos.NewRequestInfo(q)
		if err != nil || !allows(role, info) {
			select {
			case r.denied <- info.Verb:
			default:
			}
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
			return
		}
		r.note(info.Verb)
		proxy.ServeHTTP(w, q)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections) // a watch has no end
	r.kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, writeKubeconfig(r.kubeconfig, &rest.Config{Host: server.URL}))
	return r
}

func (r *restricted) note(verb string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if verb == "watch" && !r.used[verb] {
		close(r.watched)
	}
	r.used[verb] = true
}

// allows is the rule of RBAC for namespaced resources (Kubernetes, "Using RBAC Authorization").
func allows(role *rbacv1.Role, q *request.RequestInfo) bool {
	return q.IsResourceRequest && slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Verbs, q.Verb) && slices.Contains(rule.APIGroups, q.APIGroup) && slices.Contains(rule.Resources, q.Resource) &&
			(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, q.Name))
	})
}

// without is the role less one verb.
func without(role *rbacv1.Role, verb string) *rbacv1.Role {
	role = role.DeepCopy()
	for i := range role.Rules {
		role.Rules[i].Verbs = slices.DeleteFunc(role.Rules[i].Verbs, func(v string) bool { return v == verb })
	}
	return role
}

// stand starts a process that says "leads" when it does, and leads for as long as its standard input is open.
func (r *restricted) stand(t *testing.T, binary string) *proctest.Process {
	t.Helper()
	return proctest.Start(t, proctest.Command(t, binary, "leader", "run", "scheduler", "--backend", "kubernetes", "--kubeconfig", r.kubeconfig,
		"--kube-namespace", cluster.namespace, "--", "/bin/sh", "-c", "echo leads; exec cat"))
}

func TestTheRoleOfDeployIsWhatAnElectionNeeds(t *testing.T) {
	binary := command(t)
	role := object[rbacv1.Role](t, "election.yaml", "Role")
	clean := func(t *testing.T) {
		t.Helper()
		if err := leases(t).Delete(t.Context(), "scheduler", metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			require.NoError(t, err)
		}
	}
	t.Run("all of it", func(t *testing.T) {
		clean(t)
		r := restrict(t, role)
		first := r.stand(t, binary)
		first.Expect("leads")
		second := r.stand(t, binary)
		await.Receive(t, patience, r.watched, "the second does not watch")
		first.CloseStdin()
		require.Zero(t, first.Wait())
		second.Expect("leads")
		second.CloseStdin()
		require.Zero(t, second.Wait())
		assert.Empty(t, r.denied)
		r.mu.Lock()
		defer r.mu.Unlock()
		assert.Equal(t, map[string]bool{"create": true, "get": true, "update": true, "watch": true}, r.used)
	})
	for _, verb := range []string{"create", "get", "update", "watch"} {
		t.Run("and not less: without "+verb, func(t *testing.T) {
			clean(t)
			r := restrict(t, without(role, verb))
			for range 2 {
				r.stand(t, binary)
			}
			assert.Equal(t, verb, await.Receive(t, patience, r.denied, "nothing is denied"))
		})
	}
}
