package shared_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/lease/shared"
)

func Example() {
	ctx := context.Background()
	store := leasetest.NewStore() // or lease/postgres, lease/sqlite, lease/etcd
	locker, err := shared.New(shared.Config{Store: store})
	if err != nil {
		log.Fatal(err)
	}
	gpu := func(holder string) shared.Request {
		return shared.Request{AcquireRequest: lease.AcquireRequest{Name: "gpu", Holder: holder, TTL: time.Minute}, Slots: 2}
	}
	var last shared.Share
	for _, holder := range []string{"a", "b", "c"} {
		share, err := locker.Acquire(ctx, gpu(holder), 0)
		if errors.Is(err, lease.ErrHeld) {
			fmt.Println(holder, "waits")
			continue
		}
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(holder, "has slot", share.Slot)
		last = share
	}
	if err := store.Release(ctx, last.Claim); err != nil {
		log.Fatal(err)
	}
	share, err := locker.Acquire(ctx, gpu("c"), time.Second)
	fmt.Println("c has slot", share.Slot, err)
	// Output:
	// a has slot 1
	// b has slot 2
	// c waits
	// c has slot 2 <nil>
}

func Example_readersAndAWriter() {
	ctx := context.Background()
	store := leasetest.NewStore()
	locker, err := shared.New(shared.Config{Store: store})
	if err != nil {
		log.Fatal(err)
	}
	catalogue := lease.AcquireRequest{Name: "catalogue", Holder: "reader", TTL: time.Minute}
	read := shared.Request{AcquireRequest: catalogue}
	write := shared.Request{AcquireRequest: catalogue, Exclusive: true}
	reader, err := locker.Acquire(ctx, read, 0)
	fmt.Println("a reader is in:", err == nil)
	_, err = locker.Acquire(ctx, write, 0)
	fmt.Println("a writer too:", err == nil)
	if err := store.Release(ctx, reader.Claim); err != nil {
		log.Fatal(err)
	}
	writer, err := locker.Acquire(ctx, write, 0)
	fmt.Println("the writer is in:", err == nil, writer.Fence > reader.Fence)
	_, err = locker.Acquire(ctx, read, 0)
	fmt.Println("a reader too:", err == nil)
	// Output:
	// a reader is in: true
	// a writer too: false
	// the writer is in: true true
	// a reader too: false
}
