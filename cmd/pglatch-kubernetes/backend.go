package main

import (
	"cmp"
	"errors"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/pglatch/pglatch/cmd/internal/leadercmd"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/leader/kubernetes"
)

// flags adds the flags of the backend, and returns a function that opens an election by them.
func flags(f *pflag.FlagSet) leadercmd.OpenFunc {
	var file, namespace string
	f.StringVar(&file, "kubeconfig", "", "`file` of the cluster and its credentials (default: KUBECONFIG, ~/.kube/config, or the service account of the pod)")
	f.StringVar(&namespace, "kube-namespace", "", "`namespace` of the Lease (default: "+kubernetes.NamespaceVariable+", else that of the kubeconfig or the pod)")
	return func(app *program.App, args []string) (*leadercmd.Election, error) {
		name, err := leadercmd.ElectionName(args)
		if err != nil {
			return nil, err
		}
		config, context, err := load(file)
		if err != nil {
			return nil, program.UsageError("--kubeconfig: %w", err)
		}
		namespace := cmp.Or(namespace, os.Getenv(kubernetes.NamespaceVariable), context)
		if wrong := validation.IsDNS1123Subdomain(name); wrong != nil {
			return nil, program.UsageError("NAME is %q: %s", name, strings.Join(wrong, ", "))
		}
		if wrong := validation.IsDNS1123Label(namespace); wrong != nil {
			return nil, program.UsageError("--kube-namespace is %q: %s", namespace, strings.Join(wrong, ", "))
		}
		backend, err := kubernetes.NewFromConfig(config, namespace, name)
		if err != nil {
			return nil, program.UsageError("--kubeconfig: %w", err)
		}
		backend.Logger = app.Logger()
		return &leadercmd.Election{Name: name, Backend: backend}, nil
	}
}

// load finds the cluster and its namespace by the rules of kubectl. If file is not "", load reads only that
// file.
func load(file string) (config *rest.Config, namespace string, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil)
	if config, err = loader.ClientConfig(); err != nil {
		if clientcmd.IsEmptyConfig(err) {
			err = errors.New("it is not given, KUBECONFIG and ~/.kube/config name no cluster, and this is no pod with a service account")
		}
		return nil, "", err
	}
	namespace, _, err = loader.Namespace()
	return config, namespace, err
}
