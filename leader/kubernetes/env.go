package kubernetes

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// NamespaceVariable is the environment variable of NewFromEnv. Kubernetes sets it
// by the downward API: see examples/kubernetes.
const NamespaceVariable = "POD_NAMESPACE"

// DefaultNamespace is the namespace if NamespaceVariable is empty.
const DefaultNamespace = "default"

// NewFromEnv returns a Backend for a program that runs in a pod, on the Lease of
// that name. POD_NAMESPACE is its namespace, "default" without it. On failure, such
// as outside of a cluster, it says what is missing. It does no I/O but to read the
// pod's credentials.
func NewFromEnv(leaseName string) (*Backend, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("leader: Lease %s: the program does not run in a pod with a service account: use NewFromConfig with a kubeconfig: %w", leaseName, err)
	}
	return NewFromConfig(config, cmp.Or(os.Getenv(NamespaceVariable), DefaultNamespace), leaseName)
}

// NewFromConfig returns a Backend with a client of its own, which is made from
// config's address and credentials. That speaks HTTP/1.1, where a request that is
// not answered in time takes its connection with it, and the next one gets a new
// one: a connection of HTTP/2 would be kept, and may be dead, for 45 s. It speaks
// JSON and sends as many requests as the election needs.
func NewFromConfig(config *rest.Config, namespace, name string) (*Backend, error) {
	if namespace == "" || name == "" {
		return nil, errors.New("leader: a Lease needs a namespace and a name")
	}
	own := rest.CopyConfig(config)
	own.NextProtos = []string{"http/1.1"}
	own.ContentType, own.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	own.QPS, own.RateLimiter, own.Timeout = -1, nil, 0
	client, err := clientset.NewForConfig(own)
	if err != nil {
		return nil, fmt.Errorf("leader: Lease %s/%s: %w", namespace, name, err)
	}
	return NewBackend(client, namespace, name), nil
}
