//go:build linux

package kubernetes

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
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
