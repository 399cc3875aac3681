//go:build linux

package kubernetes

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/proctest"
)

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
