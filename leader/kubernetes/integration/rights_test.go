//go:build linux

package integration

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
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

// stand starts a process that leads for as long as its standard input is open.
func (r *restricted) stand(t *testing.T, binary string) (cmd *exec.Cmd, resign io.Closer, leads chan struct{}) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), binary, "leader", "run", "scheduler", "--backend", "kubernetes", "--kubeconfig", r.kubeconfig,
		"--kube-namespace", cluster.namespace, "--", "/bin/sh", "-c", "echo leads; exec cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	leads = make(chan struct{})
	go func() {
		if _, err := out.Read(make([]byte, 1)); err == nil {
			close(leads)
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	return cmd, in, leads
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
	await := func(t *testing.T, what string, event <-chan struct{}) {
		t.Helper()
		select {
		case <-event:
		case <-time.After(patience):
			require.Fail(t, what)
		}
	}
	t.Run("all of it", func(t *testing.T) {
		clean(t)
		r := restrict(t, role)
		first, resign, leads := r.stand(t, binary)
		await(t, "the first does not lead", leads)
		second, end, succeeds := r.stand(t, binary)
		await(t, "the second does not watch", r.watched)
		require.NoError(t, resign.Close())
		require.NoError(t, first.Wait())
		await(t, "the second does not lead", succeeds)
		require.NoError(t, end.Close())
		require.NoError(t, second.Wait())
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
				cmd, _, _ := r.stand(t, binary)
				t.Cleanup(func() {
					_ = cmd.Process.Kill()
					_ = cmd.Wait() // killed
				})
			}
			select {
			case denied := <-r.denied:
				assert.Equal(t, verb, denied)
			case <-time.After(patience):
				require.Fail(t, "nothing is denied")
			}
		})
	}
}
