package advisory

import (
	"bytes"
	"log/slog"
	"runtime"
	"sync"
	"time"
)

// A reporter reports lost locks to the Logger and the Tracer, in the order of the losses. Both are code of
// the program. They may be slow, and may call the Locker, Close included. So they run on a goroutine of their
// own, without a mutex, and only when the contexts of all locks that a connection carried have ended.
type reporter struct {
	mu        sync.Mutex
	ending    int // connections whose locks' contexts are being ended
	queue     []report
	most      int           // maximum length of queue
	dropped   int64         // reports dropped because queue was full
	busy      chan struct{} // closed when the reporting goroutine is done; nil = there is none
	goroutine []byte        // the reporting goroutine, as in a stack
}

// mostReports is how many reports can wait for a slow Logger or Tracer: more than the number of locks that a
// connection usually carries. Further reports are dropped and counted.
const mostReports = 1 << 16

// A report is a pending report of a loss or of a release, or another line for the Logger.
type report struct {
	line     func(*slog.Logger) // nil = it is of a lock
	lock     *Lock
	released bool
	held     time.Duration
	loss     *LostError // nil if the lock was held when it was released
}

// hold delays reports until resumeReports.
func (p *reporter) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending++
}

func (c *core) resumeReports() {
	p := &c.reports
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ending--
	p.start(c)
}

// reportLoss counts the loss of a lock, and queues a report of it.
func (c *core) reportLoss(l *Lock, loss *LostError) {
	c.stats.lost.Add(1)
	c.report(report{lock: l, held: loss.Held, loss: loss})
}

// reportTo queues a line for the Logger.
func (c *core) reportTo(line func(*slog.Logger)) { c.report(report{line: line}) }

// report queues a report behind the earlier ones.
func (c *core) report(r report) {
	p := &c.reports
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) >= p.most {
		p.dropped++
		c.stats.unreported.Add(1)
		return
	}
	p.queue = append(p.queue, r)
	p.start(c)
}

// start begins to report, under mu, if there is something to report.
func (p *reporter) start(c *core) {
	if p.busy != nil || p.ending > 0 || len(p.queue) == 0 {
		return
	}
	p.busy = make(chan struct{})
	go p.run(c)
}

// run makes the queued reports. If a report ends this goroutine, another one makes the rest.
func (p *reporter) run(c *core) {
	p.mu.Lock()
	p.goroutine = goroutine()
	defer func() {
		close(p.busy)
		p.busy, p.goroutine = nil, nil
		p.start(c)
		p.mu.Unlock()
	}()
	for p.ending == 0 && len(p.queue) > 0 {
		r := p.queue[0]
		p.queue[0] = report{}
		p.queue = p.queue[1:]
		dropped := p.dropped
		p.dropped = 0
		p.unlocked(func() {
			c.traceEnd(r)
			c.traceDropped(dropped)
		})
	}
}

func (p *reporter) unlocked(f func()) {
	p.mu.Unlock()
	defer p.mu.Lock()
	f()
}

// reporting reports whether its caller is a report. Nothing can wait for such a caller.
func (p *reporter) reporting() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busy != nil && bytes.Equal(p.goroutine, goroutine())
}

// wait waits for the pending reports.
func (p *reporter) wait() {
	p.mu.Lock()
	busy := p.busy
	p.mu.Unlock()
	if busy != nil {
		<-busy
	}
}

// goroutine returns the beginning of the caller's stack, which identifies its goroutine: "goroutine 42 ".
func goroutine() []byte {
	stack := make([]byte, 64)
	stack = stack[:runtime.Stack(stack, false)] // "goroutine 42 [running]:…"
	name, _, _ := bytes.Cut(stack, []byte("["))
	return name
}
