package leader

import (
	"context"
	"sync"
)

// A lifecycle spans one Start to the next Stopped.
type lifecycle struct {
	ctx        context.Context // for its values only
	quit       context.Context // ends when a stop is requested
	stop       context.CancelFunc
	decided    chan struct{} // closed by decide, once
	decide     func()        // records that the first attempt does not end the lifecycle
	done       chan struct{}
	err        error       // why it ended of itself; read only after done
	leadership *leadership // the current one, guarded by mu
}

func newLifecycle(ctx context.Context) *lifecycle {
	l := &lifecycle{ctx: context.WithoutCancel(ctx), decided: make(chan struct{}), done: make(chan struct{})}
	l.decide = sync.OnceFunc(func() { close(l.decided) })
	l.quit, l.stop = context.WithCancel(ctx)
	return l
}

func (l *lifecycle) over() bool { return closed(l.done) }

func (l *lifecycle) isDecided() bool { return closed(l.decided) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
