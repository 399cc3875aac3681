package advisory

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
)

// A note is additional information about a held lock.
type note struct {
	asked   chan struct{} // closed when somebody requests the release
	closed  bool
	watched bool   // the program has called Asked
	taker   []byte // "goroutine 42 ": the goroutine that took the lock; nil = unknown
}

func (n *note) wasAsked() bool { return n != nil && n.closed }

// Asked returns Lock.Asked of the innermost lock that ctx carries. It is for work that Do and
// DoOrSkip run. It returns nil if ctx carries no lock.
func Asked(ctx context.Context) <-chan struct{} {
	if l, ok := ctx.Value(lockContextKey{}).(*Lock); ok {
		return l.Asked()
	}
	return nil
}

// Asked returns a channel that is closed when somebody requests the release of the lock, for
// example an operator who needs the key. Config.Answer must allow such requests. The request
// does not end the lock: work that can stop early should check the channel. The channel is
// not closed when the lock is released or lost.
func (l *Lock) Asked() <-chan struct{} {
	if l.core == nil {
		return make(chan struct{})
	}
	l.core.mu.Lock()
	defer l.core.mu.Unlock()
	if !l.live() {
		return make(chan struct{})
	}
	n := l.core.note(l)
	n.watched = true
	return n.asked
}

// ask notifies the holder of a lock that its release was requested.
func (c *core) ask(l *Lock) (remark string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !l.live() {
		return "it has just been released"
	}
	n := c.note(l)
	if !n.closed {
		n.closed = true
		close(n.asked)
	}
	if !n.watched {
		remark = "the program has not looked at Lock.Asked yet"
	}
	return remark
}

// maxStacks bounds the size of a dump of all goroutines.
const maxStacks = 64 << 20

// dump logs the stack of the goroutine that took a lock.
func (c *core) dump(l *Lock) (remark string) {
	c.mu.Lock()
	var taker []byte
	if n := c.notes[l]; n != nil {
		taker = n.taker
	}
	c.mu.Unlock()
	about := []any{slog.String("key", l.Key().String()), slog.String("label", l.label)}
	stack := stackOf(taker)
	if stack == "" {
		c.reportTo(func(log *slog.Logger) {
			log.Warn("the goroutine that took the lock has ended, and the lock is held", about...)
		})
		return "the goroutine that took the lock has ended, and the lock is held: another one is to release it, or it was forgotten"
	}
	c.reportTo(func(log *slog.Logger) {
		log.Warn("stack of the goroutine that took the lock", append(about, slog.String("stack", stack))...)
	})
	return "the stack is in the process' log"
}

// stackOf returns the stack of the goroutine whose stack begins with head, or "".
func stackOf(head []byte) string {
	if len(head) == 0 {
		return ""
	}
	stacks := make([]byte, 1<<20)
	n := runtime.Stack(stacks, true)
	for n == len(stacks) && n < maxStacks {
		stacks = make([]byte, 2*len(stacks))
		n = runtime.Stack(stacks, true)
	}
	for stack := range bytes.SplitSeq(stacks[:n], []byte("\n\n")) {
		if bytes.HasPrefix(stack, head) {
			return string(stack)
		}
	}
	return ""
}

// noteTaker notes the goroutine that took a lock.
func (c *core) noteTaker(l *Lock) {
	taker := goroutine()
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.live() {
		c.note(l).taker = taker
	}
}

// note returns the note of a held lock, under mu.
func (c *core) note(l *Lock) *note {
	n := c.notes[l]
	if n == nil {
		n = &note{asked: make(chan struct{})}
		c.notes[l] = n
	}
	return n
}
