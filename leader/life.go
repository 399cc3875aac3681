package leader

import (
	"context"
	"sync"
)

// A life is one time from Start to Stopped.
type life struct {
	ctx     context.Context // for its values only
	quit    context.Context // ends when a stop is requested
	stop    context.CancelFunc
	decided chan struct{} // closed by decide, which closes it once
	decide  func()        // the first attempt does not end it, whatever came of it
	done    chan struct{}
	err     error  // why it ended of itself; read after done
	reign   *reign // the current one, guarded by mu
}

func newLife(ctx context.Context) *life {
	l := &life{ctx: context.WithoutCancel(ctx), decided: make(chan struct{}), done: make(chan struct{})}
	l.decide = sync.OnceFunc(func() { close(l.decided) })
	l.quit, l.stop = context.WithCancel(ctx)
	return l
}

func (l *life) over() bool { return closed(l.done) }

func (l *life) isDecided() bool { return closed(l.decided) }

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
