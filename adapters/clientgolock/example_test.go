package clientgolock_test

import (
	"context"
	"log"
	"time"

	"k8s.io/client-go/tools/leaderelection"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/pglatch/pglatch/adapters/clientgolock"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

// A manager of controller-runtime elects on a lock server (pglatch serve locks).
func Example() {
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://127.0.0.1:8080"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lock, err := clientgolock.New(client, clientgolock.Config{Name: "my-operator"})
	if err != nil {
		log.Fatal(err)
	}
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lock,
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Print(manager.Start(ctrl.SetupSignalHandler()))
}

// The elector of client-go itself.
func ExampleLock_Token() {
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{"http://127.0.0.1:8080"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	lock, err := clientgolock.New(client, clientgolock.Config{Name: "scheduler"})
	if err != nil {
		log.Fatal(err)
	}
	leaderelection.RunOrDie(context.Background(), leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				token := lock.Token() // goes with every write, which refuses a smaller one than it has seen
				log.Print("leading with token ", token)
				<-ctx.Done()
			},
			OnStoppedLeading: func() { log.Print("not leading any more") },
		},
	})
}
