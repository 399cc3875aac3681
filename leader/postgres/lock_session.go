package postgres

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A serverSession identifies a session on the server. An abandoned session of this backend may still exist
// there.
type serverSession struct {
	pid             uint32
	backendStart    time.Time
	applicationName string
}

func (g serverSession) is(h session.Holder) bool {
	return h.PID == g.pid && h.BackendStart.Equal(g.backendStart)
}

// A lockSession is a session and its stage in a takeover: it holds nothing, the election lock, an incarnation
// as well, or leadership. Between calls it is watched.
type lockSession struct {
	serverSession
	session *pgsession.Session
	gone    chan struct{} // closed when the session is lost
	report  func(error)   // closes gone, once
	cause   error         // cause of the loss, once gone is closed

	main        bool          // holds the election lock
	incarnation namespace.Tag // zero = none
	leads       bool
	warm        bool          // the server has planned its statements
	compared    int           // number of looks for the leader's name for the election
	began       time.Time     // start of the takeover
	guards      guards        // guards that the takeover waits for
	blocker     PendingError  // what the takeover waits for, or waited for last
	logged      PendingError  // the blocker that was logged last
	ping        chan error    // the outstanding ping of Renew; nil = none
	audited     chan struct{} // closed when the audit that follows the ping has ended; nil = none
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

// rest watches the session until the next call, so that a loss is detected. Pings keep the session alive,
// except a leader's: that one lasts only while the Elector renews it.
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

// cancelGrace is how long a statement may continue after its context has ended. Then it is hurried, and if
// that does not help, its session is lost.
const cancelGrace = 250 * time.Millisecond

// within makes the end of ctx end the waits and statements of a call soon, until stop is called. stop blocks
// until that can no longer happen.
func (t *lockSession) within(ctx context.Context) (stop func()) {
	return background.Run(context.Background(), func(done context.Context) {
		select {
		case <-done.Done():
			return
		case <-ctx.Done():
		}
		t.session.Interrupt()
		if pause.For(done, cancelGrace) == nil {
			t.session.Hurry()
		}
	})
}

// settle waits for the outstanding ping of an abandoned Renew, and for the audit that follows it.
func (t *lockSession) settle(ctx context.Context) {
	if t.audited == nil {
		return
	}
	stop := t.within(ctx)
	<-t.audited
	t.ping, t.audited = nil, nil // the session's state shows a loss
	stop()
}

// close ends the session. It is quick even in a dead network.
func (t *lockSession) close() {
	kill := time.AfterFunc(cancelGrace, func() { t.session.Kill(errSilent) })
	defer kill.Stop()
	t.settle(context.Background())
	t.session.Close(false)
}
