//go:build unix

package supervise

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// The group is polled at this interval while it ends, because a process is notified only of the end
// of its own children. After the kill, it is polled at most this long.
const (
	lookEvery  = 10 * time.Millisecond
	lookAtMost = time.Second
)

// Run starts the command, waits for its end and returns how it ended. When ctx ends, the child's
// group receives the command's Signal and, KillAfter later, SIGKILL. The same happens to the rest
// of the group when the child ends on its own.
//
// Errors: a *StartError if the child did not start, the cause of ctx if it had ended before. After
// any error no child is left.
func Run(ctx context.Context, c Command) (Result, error) {
	c = c.withDefaults()
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	// The kernel treats the end of the thread that started the child as the end of the parent
	// (prctl(2), PR_SET_PDEATHSIG). This thread must live as long as the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	suspends, stop := notifyStop() // before the child runs: Ctrl-Z would stop only this process
	defer stop()
	term := openTerminal()
	defer term.close()
	g, err := c.start()
	if err != nil {
		return Result{}, err
	}
	if term.isFor(c) {
		term.giveTo(g.id) // not by the child: Ctrl-Z would stop it before exec, and this thread in vfork(2) with it
	}
	r := &run{Command: c, ctx: ctx, group: g, terminal: term, suspends: suspends, warnings: make(chan func(), maxWarnings)}
	var logging sync.WaitGroup
	logging.Go(r.log)
	r.loop()
	close(r.warnings)
	logging.Wait()
	return r.result, nil
}

// start starts the child in a separate group.
func (c Command) start() (*group, error) {
	program := ""
	if len(c.Args) > 0 {
		program = c.Args[0]
	}
	path, err := exec.LookPath(program)
	if err != nil {
		return nil, startError(program, err)
	}
	stdin := c.Stdin
	if c.CloseStdin {
		if stdin, err = os.Open(os.DevNull); err != nil {
			return nil, &StartError{program, ExitFailed, err}
		}
		defer func() { _ = stdin.Close() }()
	}
	attr := &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(attr)
	defer goOnUntilStarted()()
	child, err := os.StartProcess(path, c.Args, &os.ProcAttr{
		Env: c.Env, Files: []*os.File{stdin, c.Stdout, c.Stderr}, Sys: attr,
	})
	if err != nil {
		return nil, startError(program, err)
	}
	return newGroup(child), nil
}

// A run is one child from its start to its end.
type run struct {
	Command
	ctx      context.Context
	group    *group
	terminal *terminal
	suspends <-chan os.Signal // from notifyStop
	result   Result

	reaped     bool
	killed     bool
	drained    <-chan time.Time // Drain is over
	kill       <-chan time.Time // the time limit for SIGKILL
	look       <-chan time.Time // polls while others of the group outlive the child
	interrupts int
	warnings   chan func()
}

// maxWarnings is how many warnings may wait for a blocked log, which must not keep the group alive.
// Further ones are dropped.
const maxWarnings = 8

func (r *run) warn(log func()) {
	select {
	case r.warnings <- log:
	default:
	}
}

// log writes the warnings until the channel is closed.
func (r *run) log() {
	for warning := range r.warnings {
		warning()
	}
}

// loop returns when the child is reaped and its group is gone.
func (r *run) loop() {
	done := r.ctx.Done()
	for {
		select {
		case status := <-r.group.changes:
			if status.Stopped() {
				r.childStopped(status.StopSignal())
			} else if done = nil; r.childEnded(status) {
				return
			}
		case <-done:
			done = nil
			r.stop()
		case s := <-r.Signals:
			r.forward(s.(syscall.Signal))
		case s := <-r.suspends:
			if s == syscall.SIGTTIN { // others of this group want to read
				r.terminal.takeBack()
			}
			r.suspend(false)
		case <-r.drained:
			r.warn(func() { r.Logger.Warn("the command is still running after the signal that was passed on: stopping it") })
			r.ask()
		case <-r.look:
			if !r.group.alive() {
				return
			}
		case <-r.kill:
			if r.reaped && r.killed {
				r.warn(func() {
					r.Logger.Warn("processes of the command do not go away", slog.Int("process_group", r.group.id))
				})
				return
			}
			r.end()
		}
	}
}

// stop asks the group to end because the context ended.
func (r *run) stop() {
	r.result.Stopped = true
	r.warn(func() {
		r.Logger.Warn("stopping the command", slog.String("signal", r.Signal.String()), slog.Any("error", context.Cause(r.ctx)))
	})
	r.ask()
}

// ask asks the group to end, and sets a time limit, unless there already is one.
func (r *run) ask() {
	r.group.ask(r.Signal)
	if r.kill == nil {
		r.kill = time.After(r.KillAfter)
	}
}

// end kills the group, repeatedly until the child is reaped.
func (r *run) end() {
	if !r.killed {
		r.warn(func() { r.Logger.Warn("killing the command") })
	}
	r.killed = true
	r.group.signal(syscall.SIGKILL)
	r.kill = time.After(lookAtMost)
}

func (r *run) forward(s syscall.Signal) {
	switch s {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT:
		if s == syscall.SIGINT {
			r.interrupts++
		}
		if r.result.Interrupted == 0 && r.Drain != 0 {
			r.drained = time.After(r.Drain)
		}
		r.result.Interrupted = cmp.Or(r.result.Interrupted, s)
		if r.interrupts > 1 {
			r.end()
			return
		}
		r.group.ask(s)
	default:
		r.group.signal(s)
	}
}

// childEnded reports whether the group is gone too. The child's leftover processes would otherwise
// continue without its lock.
func (r *run) childEnded(status syscall.WaitStatus) bool {
	r.reaped = true
	r.result.ExitCode = status.ExitStatus()
	if status.Signaled() {
		r.result.Signal = status.Signal()
		r.result.ExitCode = 128 + int(r.result.Signal)
		if s := r.result.Signal; r.terminal.isLent() && (s == syscall.SIGINT || s == syscall.SIGQUIT) {
			r.result.Interrupted = cmp.Or(r.result.Interrupted, s) // from the keyboard: only the child's group receives it
		}
	}
	if !r.group.alive() {
		return true
	}
	r.look = time.Tick(lookEvery)
	if r.kill == nil {
		r.warn(func() { r.Logger.Warn("ending what the command left behind", slog.Int("process_group", r.group.id)) })
		r.ask()
	}
	return false
}

// childStopped propagates a stop by the terminal that affected only the child.
func (r *run) childStopped(s syscall.Signal) {
	if r.terminal == nil {
		return
	}
	switch s {
	case syscall.SIGTSTP:
		r.suspend(true)
	case syscall.SIGTTIN, syscall.SIGTTOU: // it asks for the terminal
		switch {
		case !r.terminal.giveTo(r.group.id):
			if orphaned() {
				r.warn(func() { r.Logger.Warn("the command waits for a terminal that nobody can give it") })
				return
			}
			r.suspend(true)
		case suspendPends(r.group.id): // Ctrl-Z came meanwhile; SIGCONT would discard it
			r.suspend(true)
		default:
			r.group.signal(syscall.SIGCONT)
		}
	}
}

// suspend stops the group, and this process with it: otherwise the child would continue while the
// end of the context goes unnoticed. job = the rest of this process's own group, such as a
// pipeline, must stop too. suspend returns when this process continues.
func (r *run) suspend(job bool) {
	r.group.signal(syscall.SIGSTOP)
	lent := r.terminal.isLent()
	r.terminal.takeBack()
	stopSelf(job)
	select {
	case <-r.suspends: // a second Ctrl-Z before the stop
	default:
	}
	if lent {
		r.terminal.giveTo(r.group.id) // also when it is about to end: its handlers may set the terminal
	}
	if r.ctx.Err() != nil && !r.result.Stopped {
		return // the loop will see it
	}
	r.group.signal(syscall.SIGCONT)
}
