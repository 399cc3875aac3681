package main

import (
	"context"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/postgres"
)

// A shardNode owns a part of six shards.
type shardNode struct {
	node *shards.Node
	stop context.CancelFunc
	done chan error
}

// newShards has as argument the identity.
func newShards(ctx context.Context, dsn string, args []string) (role, error) {
	backend, err := postgres.New(postgres.Config{DSN: dsn, Namespace: entities, CreateTable: true})
	if err != nil {
		return nil, err
	}
	node, err := shards.New(shards.Config{
		Name: "compat", Backend: backend, Identity: args[0], Count: 6, LeaseDuration: 10 * time.Second, LookInterval: 100 * time.Millisecond, MinStay: -1,
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	n := &shardNode{node: node, stop: stop, done: make(chan error, 1)}
	go func() {
		n.done <- node.Run(ctx, func(ctx context.Context, _ shards.Shard) error { <-ctx.Done(); return nil })
	}()
	return n, nil
}

func (n *shardNode) close() { n.stop() }

func (n *shardNode) answer(ctx context.Context, verb string, _ []string) (string, error) {
	switch verb {
	case "owned": // each as name:term
		var names []string
		for _, s := range n.node.Owned() {
			names = append(names, fmt.Sprint(s.Name, ":", s.Term.Uint64()))
		}
		return "owned " + sorted(names), nil
	case "all": // as soon as it owns them
		for len(n.node.Owned()) < 6 {
			select {
			case err := <-n.done:
				return "", err
			case <-time.After(10 * time.Millisecond):
			}
		}
		return n.answer(ctx, "owned", nil)
	case "stop":
		n.stop()
		return "stopped", <-n.done
	}
	return "", unknown(verb)
}
