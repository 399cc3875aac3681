package lease

import "context"

// A Messenger is a Store through which those who share it send each other short
// messages: lease/leaseserver tells other servers who waits for a name, and that it is
// free. A message may get lost, and nothing of what a Store promises rests on one.
type Messenger interface {
	// Listen calls receive with each message that anybody sends, this Store too, in the same
	// order for all who listen, beginning with those sent after it called ready. It returns
	// when ctx ends, or why it cannot go on.
	Listen(ctx context.Context, ready func(), receive func(message string)) error
	// Send sends messages, in order. Each has at most 1,024 bytes.
	Send(ctx context.Context, messages []string) error
}
