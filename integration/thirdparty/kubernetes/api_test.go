//go:build linux

package kubernetes

import (
	"context"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

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
