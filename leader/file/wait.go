package file

import (
	"context"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
)

// poll is the mean time between two looks at the file. A look needs no lock and takes some microseconds.
const poll = 20 * time.Millisecond

// Wait returns nil when leadership may be free: within 30 ms after a release, or when the lease ends. It
// holds nothing. When ctx ends, it returns ctx's cause. If the file cannot be read, it returns an error at
// once.
func (b *Backend) Wait(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return failed("wait", b.path, context.Cause(ctx))
		case <-timer.C:
		}
		v, err := b.look()
		if err != nil {
			return failed("wait", b.path, err)
		}
		if v.free() && ctx.Err() == nil {
			return nil
		}
		timer.Reset(min(v.left, pause.Jitter(poll, 0.5)))
	}
}
