package leasehttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func ExampleClient_Do() {
	server, err := leaseserver.New(leaseserver.Config{Store: leasetest.NewStore()})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := httptest.NewServer(server.Handler())
	defer h.Close()

	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{h.URL}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	err = client.Do(context.Background(), "nightly-report", func(ctx context.Context) error {
		fmt.Println("writing with token", leasehttp.FencingToken(ctx))
		_, err := client.Acquire(ctx, lease.AcquireRequest{Name: "nightly-report", Holder: "worker-2", TTL: leasehttp.DefaultTTL})
		fmt.Println("another one:", errors.Is(err, lease.ErrHeld))
		return nil
	})
	fmt.Println(err)
	// Output:
	// writing with token 1
	// another one: true
	// <nil>
}

func ExampleClient_AcquireWithRetry() {
	server, err := leaseserver.New(leaseserver.Config{Store: leasetest.NewStore()})
	if err != nil {
		fmt.Println(err)
		return
	}
	h := httptest.NewServer(server.Handler())
	defer h.Close()
	client, err := leasehttp.NewClient(leasehttp.ClientConfig{BaseURLs: []string{h.URL}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	ctx := context.Background()
	l, err := client.AcquireWithRetry(ctx, "job-lock", "worker-1", leasehttp.AcquireOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.ReleaseOnce(ctx, l) }()
	work, errs := client.StartHeartbeat(ctx, l, leasehttp.HeartbeatOptions{})
	go func() {
		for err := range errs {
			fmt.Println("renewal failed:", err)
		}
	}()
	fmt.Println("token", l.FencingTokenValue(), "may work:", work.Err() == nil)
	// Output: token 1 may work: true
}
