//go:build linux

package kubernetes

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/kubernetes"
	"github.com/pglatch/pglatch/leader/leadertest"
)

// openCluster uses a cluster that exists, in a namespace of its own, which it deletes
// at the end. It is not stopped.
func openCluster(ctx context.Context, kubeconfig string) (*api, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := clientset.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	namespaces := client.CoreV1().Namespaces()
	own, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "pglatch-test-"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return &api{
		name: "the cluster " + config.Host, kubeconfig: kubeconfig, config: config, namespace: own.Name,
		close: func() {
			if err := namespaces.Delete(context.Background(), own.Name, metav1.DeleteOptions{}); err != nil {
				fmt.Fprintln(os.Stderr, "deleting the namespace:", err)
			}
		},
	}, nil
}

const patience = await.Patience

// cluster is the API that all tests use.
var cluster *api

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	electiontest.Main(map[string]electiontest.Role{"ours": ours, "client-go": theirs})
	os.Exit(run(m))
}

func run(m *testing.M) int {
	began := time.Now()
	var err error
	if cluster, err = openAPI(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "opening the API:", err)
		return 1
	}
	defer cluster.close()
	fmt.Printf("%s: ready after %v\n", cluster.name, time.Since(began).Round(time.Millisecond))
	return m.Run()
}

// leaseName is that of a fresh election.
func leaseName() string { return "election-" + strings.ToLower(rand.Text()[:10]) }

// The variables that choose the API.
const (
	kubeconfigVariable = "PGLATCH_TEST_KUBECONFIG"
	apiserverVariable  = "KUBE_APISERVER_BIN"
	etcdVariable       = "ETCD_BIN"
)

// An api is the API that tests use: see the package.
type api struct {
	name       string
	kubeconfig string // file
	config     *rest.Config
	namespace  string
	stop       func() // refuses all connections until start; nil = it cannot be stopped
	start      func() error
	close      func()
}

func openAPI(ctx context.Context) (*api, error) {
	switch {
	case os.Getenv(kubeconfigVariable) != "":
		return openCluster(ctx, os.Getenv(kubeconfigVariable))
	case os.Getenv(apiserverVariable) != "" && os.Getenv(etcdVariable) != "":
		return startServers(ctx, os.Getenv(apiserverVariable), os.Getenv(etcdVariable))
	}
	l, err := startLibrary(ctx)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(l.dir, "kubeconfig")
	if err := writeKubeconfig(file, l.config()); err != nil {
		l.close()
		return nil, err
	}
	return &api{
		name: "the API's library", kubeconfig: file, config: l.config(), namespace: "default",
		stop: l.stop, start: l.start, close: l.close,
	}, nil
}

// writeKubeconfig writes what reaches an API.
func writeKubeconfig(file string, config *rest.Config) error {
	k := clientcmdapi.NewConfig()
	k.Clusters["test"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthority: config.CAFile}
	k.AuthInfos["test"] = &clientcmdapi.AuthInfo{Token: config.BearerToken}
	k.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	k.CurrentContext = "test"
	return clientcmd.WriteToFile(*k, file)
}

// createLeases makes Lease a custom resource, with the fields that it has as a
// built-in one, and waits until it is served.
func createLeases(ctx context.Context, config *rest.Config) error {
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	crds := client.ApiextensionsV1().CustomResourceDefinitions()
	ready := false
	created := wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		_, err := crds.Create(ctx, leaseDefinition(), metav1.CreateOptions{})
		return err == nil, nil // it may not serve yet
	})
	if created != nil {
		return created
	}
	return wait.PollUntilContextCancel(ctx, 50*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		crd, err := crds.Get(ctx, "leases.coordination.k8s.io", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		for _, c := range crd.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				// For two seconds after that every write takes two seconds.
				ready = time.Since(c.LastTransitionTime.Time) > 3*time.Second
			}
		}
		return ready, nil
	})
}

func leaseDefinition() *apiextensionsv1.CustomResourceDefinition {
	field := func(kind, format string) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: kind, Format: format}
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "leases.coordination.k8s.io",
			Annotations: map[string]string{"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/70344"},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "coordination.k8s.io", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "leases", Singular: "lease", Kind: "Lease", ListKind: "LeaseList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {
						Type: "object",
						Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"holderIdentity":       field("string", ""),
							"leaseDurationSeconds": field("integer", "int32"),
							"acquireTime":          field("string", "date-time"),
							"renewTime":            field("string", "date-time"),
							"leaseTransitions":     field("integer", "int32"),
						},
					}},
				}},
			}},
		},
	}
}

func TestTheBackendConforms(t *testing.T) {
	leadertest.Run(t, leadertest.Harness{
		TTL: 2 * time.Second,
		New: func(t *testing.T) func() driver.Backend {
			t.Helper()
			name := leaseName()
			return func() driver.Backend {
				b, err := kubernetes.NewFromConfig(cluster.config, cluster.namespace, name)
				require.NoError(t, err)
				return b
			}
		},
	})
}
