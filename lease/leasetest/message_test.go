package leasetest_test

import (
	"context"
	"slices"
	"sync"
)

// A board is where a faulty store's messages are.
type board struct {
	mu      sync.Mutex
	all     []string
	changed chan struct{}
}

func newBoard() *board { return &board{changed: make(chan struct{})} }

func (b *board) since(n int) (messages []string, changed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.all[n:]), b.changed
}

// Send implements lease.Messenger.
func (b *faulty) Send(_ context.Context, messages []string) error {
	messages = slices.Clone(messages)
	switch b.kind {
	case "messages of one sending are turned round":
		slices.Reverse(messages)
	case "long messages are cut":
		for i, m := range messages {
			messages[i] = m[:min(len(m), 1000)]
		}
	}
	b.board.mu.Lock()
	defer b.board.mu.Unlock()
	b.board.all = append(b.board.all, messages...)
	close(b.board.changed)
	b.board.changed = make(chan struct{})
	return nil
}

// Listen implements lease.Messenger.
func (b *faulty) Listen(ctx context.Context, ready func(), receive func(message string)) error {
	before, _ := b.board.since(0)
	n := len(before)
	if b.kind == "old messages are heard" {
		n = 0
	}
	ready()
	for {
		all, changed := b.board.since(n)
		for _, m := range all {
			receive(m)
		}
		n += len(all)
		select {
		case <-changed:
		case <-ctx.Done():
			if b.kind == "the end of a listener is none" {
				return nil
			}
			return context.Cause(ctx)
		}
	}
}
