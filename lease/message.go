package lease

import "context"

// A Messenger is a Store that also carries short messages between the processes that share it. With
// it, lock servers (lease/leaseserver) that have queues of their own notify each other of names that
// they have changed, and of names that their requests wait for. A message may get lost: no guarantee
// of a Store depends on messages.
type Messenger interface {
	// Listen calls receive with each message that any Store on the same data sends, including
	// this one. All listeners receive messages in the same order, beginning with messages that
	// are sent after Listen has called ready. Listen returns when ctx ends, or with the reason
	// why it cannot continue.
	Listen(ctx context.Context, ready func(), receive func(message string)) error
	// Send sends messages, in order. Each has at most 1,024 bytes.
	Send(ctx context.Context, messages []string) error
}
