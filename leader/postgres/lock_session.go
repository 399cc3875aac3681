package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A serverSession is what a session is known by at the server, where one that this backend
// gave up may still be.
type serverSession struct {
	pid             uint32
	backendStart    time.Time
	applicationName string
}

func (g serverSession) is(h session.Holder) bool {
	return h.PID == g.pid && h.BackendStart.Equal(g.backendStart)
}

// A lockSession is a session and how far it has come: it holds nothing, the election
// lock, an incarnation too, or leadership. Between calls it is watched.
type lockSession struct {
	serverSession
	session *pgsession.Session
	gone    chan struct{} // closed when the session is lost
	report  func(error)   // closes gone, once
	cause   error         // of the loss, once gone is closed

	main        bool          // holds the election lock
	incarnation namespace.Tag // zero = none
	leads       bool
	warm        bool          // has planned its statements
	compared    int           // looks for the name that the leader has for the election
	began       time.Time     // of the takeover
	guards      guards        // that the takeover waits for
	blocker     blocker       // what it waits for, or waited for last
	logged      blocker       // the one that was logged last
	ping        chan error    // the outstanding ping of Renew; nil = none
	audited     chan struct{} // closed when what follows that ping has ended, too; nil = there was none
}

func newLockSession(s *pgsession.Session, backendStart time.Time, applicationName string) *lockSession {
	t := &lockSession{
		serverSession: serverSession{s.PID(), backendStart, applicationName},
		session:       s,
		gone:          make(chan struct{}),
	}
	var once sync.Once
	t.report = func(err error) { once.Do(func() { t.cause = err; close(t.gone) }) }
	return t
}

// rest watches the session until the next call, so that a loss is known. Pings keep
// it, but for a leader's, which lasts only as long as somebody renews it.
func (t *lockSession) rest() {
	if t.leads {
		t.session.Listen(t.report)
		return
	}
	t.session.Watch(t.report)
}

// lost returns why the session is gone, or nil.
func (t *lockSession) lost() error {
	select {
	case <-t.gone:
		return t.cause
	default:
	}
	if t.session.Look(time.Now(), false).State == session.Lost {
		return errSilent
	}
	return nil
}

var (
	errSilent  = errors.New("no answer from the server before the deadline")
	errClosed  = errors.New("session closed")
	errNoRight = errors.New("INSERT or UPDATE was revoked")
)

// cancelGrace is how long after the end of a context a statement may go on before it is
// hurried, and its session lost if that does not help.
const cancelGrace = 250 * time.Millisecond

// within makes the end of ctx end the waits and statements of a call soon, until
// stop, which blocks until that cannot happen any more.
func (t *lockSession) within(ctx context.Context) (stop func()) {
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-done:
			return
		case <-ctx.Done():
		}
		t.session.Interrupt()
		select {
		case <-done:
		case <-time.After(cancelGrace):
			t.session.Hurry()
		}
	})
	return func() { close(done); wg.Wait() }
}

// settle waits for the ping of a Renew that was given up, and for the look at the table that follows it.
func (t *lockSession) settle(ctx context.Context) {
	if t.audited == nil {
		return
	}
	stop := t.within(ctx)
	<-t.audited
	t.ping, t.audited = nil, nil // a loss is seen in the session's state
	stop()
}

// close ends the session, soon also in a dead network.
func (t *lockSession) close() {
	kill := time.AfterFunc(cancelGrace, func() { t.session.Kill(errSilent) })
	defer kill.Stop()
	t.settle(context.Background())
	t.session.Close(false)
}
