//go:build integration

package election

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/faultproxy"
	"github.com/pglatch/pglatch/internal/pgtest/pgserver"
)

// A fault is what happens to a leader in a round.
type fault string

const (
	nothing   fault = ""
	killed    fault = "killed"     // kill -9, and started again
	suspended fault = "suspended"  // SIGSTOP for longer than the lease, then SIGCONT
	ended     fault = "terminated" // pg_terminate_backend of its session
	restarted fault = "restarted"  // the server, and with it all sessions
	cutOff    fault = "cut off"    // nothing arrives, and nobody is told
	deposed   fault = "deposed"    // steps down
	retired   fault = "retired"    // stops in good order, and is started again
)

var faults = []fault{killed, suspended, ended, restarted, cutOff, deposed, retired}

// noticeBound is how long after its successor's first act a leader may act whose
// session the server has ended: it is told in about a millisecond. 5 ms × 20, for
// machines that have other work.
const noticeBound = 20 * 5 * time.Millisecond

// excused reports whether an act may be late. When leadership is given up, when
// nothing arrives, and when the leader is dead or stopped, none may be: a context
// ends before others can lead. But a process can be stopped between its last look
// at its context and the act.
func (l late) excused(woken time.Time) bool {
	if l.looked.Before(woken) && l.at.After(woken) {
		return true
	}
	return (l.successor.after == ended || l.successor.after == restarted) && l.by() <= noticeBound
}

// takeoverBound is how long after a fault another may lead at the latest. What only
// the machine's speed decides is multiplied by noise.
func takeoverBound(f fault, noise int) time.Duration {
	// An attempt, by one that polls because its last attempt failed, which is at most
	// renewTimeout away from the next if it waits for a guarded transaction.
	attempt := time.Duration(noise) * (retryAtMost + renewTimeout)
	switch f {
	case suspended, cutOff:
		// The server hears nothing for a lease and ends the session, and for another one
		// before it ends a guarded transaction that was stopped half way.
		return 2*lease + attempt
	case restarted:
		return 2 * attempt // the first attempt can meet the server before it accepts connections
	}
	return attempt
}

// terminateSQL ends the session that holds the election lock.
var terminateSQL = fmt.Sprintf(`SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND classid = %d AND objid = %d AND objsubid = %d`,
	election.Tag().ClassID, election.Tag().ObjID, election.Tag().ObjSubID)

// strike makes a fault happen to the leader. undo makes it good, once there is a
// successor; the nodes in affected must take part again after that.
func (a *arena) strike(t *testing.T, f fault, n *node) (undo func(), affected []*node) {
	t.Helper()
	affected = []*node{n}
	undo = func() {}
	switch f {
	case killed:
		n.kill()
		undo = n.start
	case suspended:
		began := time.Now()
		n.signal(syscall.SIGSTOP)
		undo = func() {
			<-time.After(time.Until(began.Add(lease + time.Duration(a.random.Int64N(int64(lease/2))))))
			a.woken[n.job.Node] = time.Now()
			n.signal(syscall.SIGCONT)
		}
	case ended:
		_, err := a.ledger.pool.Exec(t.Context(), terminateSQL)
		require.NoError(t, err)
	case restarted:
		a.restart(t)
		affected = a.nodes
	case cutOff:
		n.proxy.Set(faultproxy.Hold)
		undo = func() { n.proxy.Set(faultproxy.Pass) }
	case deposed:
		n.tell("step down")
	case retired:
		n.tell("stop")
		undo = func() {
			n.exit()
			n.start()
		}
	}
	return undo, affected
}

func (a *arena) restart(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	switch a.random.IntN(3) {
	case 0:
		require.NoError(t, a.server.Restart(ctx, pgserver.Fast))
	case 1:
		require.NoError(t, a.server.Restart(ctx, pgserver.Immediate))
	case 2:
		require.NoError(t, a.server.Kill())
		require.NoError(t, a.server.Start(ctx))
	}
	a.ledger.pool.Reset()
}
