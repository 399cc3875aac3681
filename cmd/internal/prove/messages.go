package prove

import (
	"context"
	"fmt"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

// observeNotify sends a message from a to b. When NOTIFY has been answered, the server has signaled every listener. The
// listener's server process sends the message before it answers another statement.
func observeNotify(x *exam) {
	channel := fmt.Sprintf("pglatch_prove_%d", x.key.object)
	x.run(x.b, "listen "+channel)
	x.run(x.a, "notify "+channel+", 'proof'")
	if x.err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(x.ctx, bound)
	_ = x.b.conn.WaitForNotification(ctx)
	cancel()
	x.ask(x.b, "1")
	x.ask(x.b, "1")
	got := ""
	for _, m := range x.b.messages {
		if m.Channel == channel {
			got = m.Payload
		}
	}
	x.saw("received", got == "proof")
	x.run(x.b, "unlisten "+channel)
}

// observeCancel lets b and the watcher wait for a lock that a holds, and cancels the watcher's wait.
func observeCancel(x *exam) {
	x.saw("held", x.try(x.a, x.key))
	b := x.wait(x.b, x.key)
	x.queued(x.a, b, x.key)
	w := x.wait(x.watch, x.key)
	x.queued(x.a, w, x.key)
	if x.err != nil || b.answered() || w.answered() {
		x.fail("the waits did not begin")
		return
	}
	sent := x.cancel(w, b)
	x.ask(x.a, "1") // if the server is silent by now, the result is unknown
	if x.err != nil {
		return
	}
	hit, stopped := canceled(b), canceled(w)
	if stopped || sent {
		x.saw("arrived", stopped)
	}
	x.unlock(x.a, x.key)
	for _, waits := range []*waiter{b, w} {
		if x.err == nil && !canceled(waits) {
			x.receive(waits)
			x.unlock(waits.session, x.key)
			hit = hit || waits == b && canceled(b)
		}
	}
	x.saw("aim", !hit)
	x.watch.close(x.ctx) // a late request must not end another statement
}

func canceled(w *waiter) bool {
	return w.answered() && sqlstate.Of(w.err) == sqlstate.QueryCanceled
}

// cancel sends cancel requests until the waiter gets an answer, or the other waiter does by mistake. It reports whether the
// server accepted a request.
func (x *exam) cancel(w, other *waiter) (sent bool) {
	end, done := context.WithTimeout(x.ctx, bound)
	defer done()
	stop := background.Run(end, func(ctx context.Context) {
		for {
			request, release := context.WithTimeout(x.ctx, bound) // an aborted request could arrive later, and PgBouncer 1.18 crashes on it
			err := w.session.conn.CancelRequest(request)
			release()
			sent = sent || err == nil
			if pause.For(ctx, resend) != nil {
				return
			}
		}
	})
	for !w.answered() && !other.answered() && pause.For(end, look) == nil {
	}
	stop()
	return sent
}
