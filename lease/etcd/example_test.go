package etcd_test

import (
	"context"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
)

func Example() {
	ctx := context.Background()
	store, err := etcd.Open(ctx, etcd.Config{Client: clientv3.Config{
		Endpoints: []string{"https://a:2379", "https://b:2379", "https://c:2379"}, Username: "locks", Password: "…",
	}})
	if err != nil {
		log.Print(err)
		return
	}
	defer store.Close()
	l, err := store.Acquire(ctx, lease.AcquireRequest{Name: "nightly-report", Holder: "worker-1", TTL: time.Minute})
	if err != nil {
		log.Print(err)
		return
	}
	log.Print("what is written to refuses a token below the greatest it has seen: ", l.Token)
	if err := store.Release(context.WithoutCancel(ctx), l.Claim); err != nil {
		log.Print(err)
	}
}
