package kubernetes_test

import (
	"context"
	"fmt"
	"log"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/kubernetes"
	"github.com/pglatch/pglatch/leader/kubernetes/internal/apitest"
)

// In a pod, NewFromEnv needs no more than the name of the Lease.
func ExampleNewFromEnv() {
	backend, err := kubernetes.NewFromEnv("my-app")
	if err != nil {
		fmt.Println("not in a pod")
		return
	}
	elector, err := leader.New(leader.Config{Name: "my-app", Backend: backend, Identity: "my-pod"})
	fmt.Println(elector != nil, err)
	// Output: not in a pod
}

// Outside of a cluster, a kubeconfig gives its address and credentials.
func ExampleNewFromConfig() {
	api := apitest.New() // in place of a cluster
	defer api.Close()
	config, err := clientcmd.BuildConfigFromFlags(api.Config().Host, "") // or "", "/home/me/.kube/config"
	if err != nil {
		log.Fatal(err)
	}
	backend, err := kubernetes.NewFromConfig(config, "default", "my-app")
	if err != nil {
		log.Fatal(err)
	}
	elector, err := leader.New(leader.Config{Name: "my-app", Backend: backend})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	err = elector.Run(ctx, func(ctx context.Context) error {
		fmt.Println("leading in term", leader.TermOfContext(ctx))
		stop()
		return nil
	})
	fmt.Println(err)
	// Output:
	// leading in term 0.1
	// <nil>
}
