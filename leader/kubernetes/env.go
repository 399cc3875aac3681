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

// NamespaceVariable is the environment variable that NewFromEnv reads. Kubernetes sets it through the
// downward API: see examples/thirdparty/kubernetes.
const NamespaceVariable = "POD_NAMESPACE"

// DefaultNamespace is the namespace that NewFromEnv uses if NamespaceVariable is empty.
const DefaultNamespace = "default"

// NewFromEnv returns a Backend for a program that runs in a pod, on the Lease with that name, in the
// namespace that POD_NAMESPACE names, or else "default". On failure, for example outside of a cluster, the
// error names what is missing. The only I/O of NewFromEnv is to read the pod's credentials.
func NewFromEnv(leaseName string) (*Backend, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("leader: Lease %s: the program does not run in a pod with a service account: use NewFromConfig with a kubeconfig: %w", leaseName, err)
	}
	return NewFromConfig(config, cmp.Or(os.Getenv(NamespaceVariable), DefaultNamespace), leaseName)
}

// NewFromConfig returns a Backend with a client of its own, made from config's address and credentials. The
// client uses HTTP/1.1: if a request is not answered in time, its connection is closed, and the next
// request gets a new one. An HTTP/2 connection would be kept for 45 s, although it may be dead. The client
// uses JSON, and does not limit the rate of its requests.
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
