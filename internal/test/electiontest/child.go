//go:build linux

package electiontest

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/internal/test/trace"
	"github.com/pglatch/pglatch/leader"
)

// A Child is a running candidate, in a separate process.
type Child struct {
	Job
	Trace      *trace.Writer // nil = nothing is written
	observer   net.Conn
	afterwards sync.WaitGroup
}

func newChild(ctx context.Context, job Job) (*Child, error) {
	w, err := trace.Open(job.Trace, job.Identity())
	if err != nil {
		return nil, err
	}
	if job.Observer == "" { // it uses only the log
		return &Child{Job: job, Trace: w}, nil
	}
	network, address, _ := strings.Cut(job.Observer, " ")
	observer, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &Child{Job: job, Trace: w, observer: observer}, nil
}

// Stand joins the election of a backend with an Elector. If also is not nil, it is called for each
// term with the leader's context, beside the operations. Stand waits for it.
func (c *Child) Stand(ctx context.Context, backend leader.Backend, also func(leading context.Context)) error {
	config := c.Config(backend)
	config.Callbacks = c.callbacks().Then(c.Trace.Elector(config))
	e, err := leader.New(config)
	if err != nil {
		return err
	}
	go c.Obey(ctx, e.StepDown, e.Shutdown) // reads until the process ends
	return e.Run(ctx, func(ctx context.Context) error {
		defer c.Trace.Work(config.Name, leader.TermOfContext(ctx))()
		var wg sync.WaitGroup
		wg.Go(func() { c.Lead(ctx, leader.TermOfContext(ctx)) })
		if also != nil {
			wg.Go(func() { also(ctx) })
		}
		wg.Wait()
		return nil
	})
}

// callbacks report events to the parent.
func (c *Child) callbacks() leader.Callbacks {
	return leader.Callbacks{
		OnAcquired:  func(term leader.Term) { c.Say("acquired", term) },
		OnRecovered: func(term leader.Term) { c.Say("recovered", term) },
		OnReleased:  func(term leader.Term) { c.Say("released", term) },
		OnLost:      func(term leader.Term, err error) { c.Say("lost", term, err) },
		OnStopped:   func(err error) { c.Say("stopped", err) },
		OnError:     func(err error) { c.Say("error", err) },
		OnAcquireFailed: func(err error) {
			if err == nil {
				c.Say("follows")
			}
		},
	}
}

// Say reports an event to the parent, in one line: see the package documentation for the words.
func (c *Child) Say(words ...any) { say(words...) }

// say joins the lines of its words: the text of a joined error has several.
func say(words ...any) {
	_, _ = fmt.Fprintln(os.Stdout, strings.ReplaceAll(strings.TrimSuffix(fmt.Sprintln(words...), "\n"), "\n", "; "))
}

// Obey executes the parent's commands, until there are no more.
func (c *Child) Obey(ctx context.Context, stepDown, stop func(context.Context) error) {
	for scanner := bufio.NewScanner(os.Stdin); scanner.Scan(); {
		ctx, cancel := context.WithTimeout(ctx, Patience)
		var err error
		switch scanner.Text() {
		case tellStepDown:
			err = stepDown(ctx)
		case tellStop:
			err = stop(ctx)
		}
		cancel()
		if err != nil {
			c.Say("failed", err)
		}
	}
}

// Lead is the work of a leader: until its context ends, it checks the context, and sends operations
// to the observer.
func (c *Child) Lead(ctx context.Context, term leader.Term) {
	if c.Stubborn {
		leading := ctx
		c.afterwards.Go(func() { c.overrun(leading, term) })
	}
	ctx = c.Outlasting(ctx)
	for n := uint64(1); ; n++ {
		looked := time.Now()
		if ctx.Err() != nil {
			return
		}
		c.Send(judge.Operation{Term: term, N: n, Looked: looked})
		next := time.Millisecond + rand.N(time.Millisecond)
		for c.Busy && time.Since(looked) < next && ctx.Err() == nil {
		}
		if !c.Busy {
			Pause(ctx, next)
		}
	}
}

// overrun continues after the end of a term with operations that only the fence may refuse.
func (c *Child) overrun(leading context.Context, term leader.Term) {
	<-leading.Done()
	for began := time.Now(); time.Since(began) < defiance; Pause(context.Background(), rand.N(5*time.Millisecond)) {
		c.Send(judge.Operation{Term: term})
	}
}

// Send sends an operation of this node to the observer.
func (c *Child) Send(op judge.Operation) {
	op.Node, op.PID = c.Node, os.Getpid()
	_, _ = c.observer.Write(op.Encode()) // a lost one counts as never done
}

// Outlasting returns ctx. For a reckless node it returns a context that ends some time after ctx.
func (c *Child) Outlasting(ctx context.Context) context.Context {
	if !c.Reckless {
		return ctx
	}
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	context.AfterFunc(ctx, func() { time.AfterFunc(defiance, cancel) })
	return longer
}

// Pause waits, and reports whether ctx has not ended.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
