package advisory

import (
	"time"

	"github.com/pglatch/pglatch/internal/session"
)

// join lets the first request, a reader, use the lock that this process has in shared
// mode, under mu. A process that kept its lock for ever newer readers would starve a
// writer elsewhere: from time to time the server is asked whether one waits.
func (k *key) join(r *request, now time.Time) bool {
	switch {
	case k.shut && r.try:
		k.refuse(r, errTaken)
		return true
	case k.shut:
		return false
	case now.Sub(k.passed) < k.core.config.HandOverBudget && k.core.verified(k.conn.session, now):
		k.conn.watchNow()
		k.give(r, true, now)
		return true
	}
	if !k.passing {
		k.passing = true
		k.conn.push(&op{key: k, pass: true, Op: session.Op{Tag: k.tag, Turnstile: k.turnstile(), Pass: true}})
	}
	return false
}

// pass is the answer to the question whether a writer waits, under mu.
func (k *key) pass(open bool) {
	k.passing = false
	if k.phase != held {
		return
	}
	k.shut = !open
	if k.shut {
		k.reopen()
	} else {
		k.polls = 0
	}
	k.passed = time.Now()
	for r := k.requests.peek(); open && r != nil && r.mode == session.Shared; r = k.requests.peek() {
		k.give(r, true, k.passed) // also with a budget of nothing
	}
	k.advance()
}

// reopen has the server asked again in a while, under mu, if a reader waits then: who had
// the turnstile may have given up, and nobody tells that.
func (k *key) reopen() {
	c, tag, pause := k.core, k.tag, pollPause<<min(k.polls, 3)
	k.polls++
	c.wg.Go(func() {
		select {
		case <-c.ctx.Done():
		case <-time.After(pause):
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if k := c.keys[tag]; k != nil && k.phase == held && k.shut {
			k.shut, k.passed = false, time.Time{}
			k.advance()
		}
	})
}
