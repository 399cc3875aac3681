package kubernetes_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/pglatch/pglatch/leader/kubernetes"
)

func TestOutsideOfAClusterTheErrorSaysWhatToDo(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := kubernetes.NewFromEnv("my-app")
	require.ErrorIs(t, err, rest.ErrNotInCluster)
	assert.ErrorContains(t, err, "use NewFromConfig with a kubeconfig")
}

func TestABackendFromAConfigLeadsAndLeavesTheConfigAsItWas(t *testing.T) {
	t.Parallel()
	server := newServer(t)
	config := &rest.Config{Host: server.Config().Host} // whose clients would speak protobuf
	b, err := kubernetes.NewFromConfig(config, namespace, name)
	require.NoError(t, err)
	lead(t, b, "a")
	assert.Equal(t, "a", kubernetes.IdentityOf(holder(server)))
	require.NoError(t, b.Release(within(t), "a"))
	assert.Equal(t, &rest.Config{Host: config.Host}, config)

	_, err = kubernetes.NewFromConfig(config, "", name)
	require.ErrorContains(t, err, "needs a namespace and a name")
	_, err = kubernetes.NewFromConfig(&rest.Config{Host: "://"}, namespace, name)
	require.Error(t, err)
}

// With HTTP/2 one connection carries everything, and stays in use for a while after
// it has died: the control is a client with client-go's defaults.
func TestABackendFromAConfigSpeaksHTTP1(t *testing.T) {
	t.Parallel()
	api := newServer(t)
	var protocol atomic.Int32
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol.Store(int32(r.ProtoMajor))
		api.ServeHTTP(w, r)
	}))
	secure.EnableHTTP2 = true
	secure.StartTLS()
	t.Cleanup(secure.Close)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
	config := &rest.Config{Host: secure.URL, TLSClientConfig: rest.TLSClientConfig{CAData: certificate}}
	b, err := kubernetes.NewFromConfig(config, namespace, name)
	require.NoError(t, err)
	lead(t, b, "a")
	require.EqualValues(t, 1, protocol.Load())

	defaults := newClient(t, config)
	_, err = defaults.CoordinationV1().Leases(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 2, protocol.Load(), "the control")
}
