package lease_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func Example() {
	ctx := context.Background()
	store := leasetest.NewStore() // or lease/postgres, lease/sqlite, lease/leasehttp

	sent := lease.Now()
	l, err := store.Acquire(ctx, lease.AcquireRequest{Name: "nightly-report", Holder: "worker-1", TTL: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	until := lease.Trust(sent, l, 0)
	fmt.Println("trusted:", !until.Passed(), "token:", l.Token)

	_, err = store.Acquire(ctx, lease.AcquireRequest{Name: "nightly-report", Holder: "worker-2", TTL: time.Minute})
	if held, ok := errors.AsType[*lease.HeldError](err); ok {
		fmt.Println("held by", held.Holder, "- try again within a second:", held.Retry < time.Second)
	}

	if err := store.Release(ctx, l.Claim); err != nil {
		fmt.Println(err)
	}
	l, err = store.Acquire(ctx, lease.AcquireRequest{Name: "nightly-report", Holder: "worker-2", TTL: time.Minute})
	fmt.Println("token:", l.Token, err)
	// Output:
	// trusted: true token: 1
	// held by worker-1 - try again within a second: true
	// token: 2 <nil>
}
