package leaseserver

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/pause"
)

// An outbox holds a server's messages to the others. Guarded by peers.mu.
type outbox struct {
	out       []string // in order; each stays until it is sent
	alive     bool     // the next alive message is due
	again     bool     // others do not know who waits here
	announced time.Time
	unheard   time.Time // time of the first message sent but not received back yet; zero = none
}

const (
	mostAtOnce  = 1_000 // messages
	resendPause = 100 * time.Millisecond
)

var errDeaf = errors.New("messages are sent, and none is heard")

// send sends pending messages, and each second that this server is alive. A server that does not
// receive its own messages does not receive those of others: then send ends the connection.
func (p *peers) send(ctx context.Context, end context.CancelCauseFunc) {
	ticker := time.NewTicker(aliveEvery)
	defer ticker.Stop()
	for some, resend := p.some, (<-chan time.Time)(nil); ; {
		select {
		case <-ctx.Done(): // locks that were released last are for the waiters of others
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(p.timeout, aliveEvery))
			defer cancel()
			_ = p.flush(last) // else they find out by themselves
			return
		case <-some:
		case <-resend:
		case <-ticker.C:
			p.forget(time.Now())
			if p.isDeaf() {
				end(errDeaf)
				return
			}
		}
		some, resend = p.some, nil
		if err := p.flush(ctx); err != nil {
			p.logger.LogAttrs(ctx, slog.LevelDebug, "peers_not_told", slog.Any("error", err))
			some, resend = nil, time.After(pause.Jitter(resendPause, 0.5))
		}
	}
}

// isDeaf is called each second.
func (p *peers) isDeaf() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.alive = true
	return !p.unheard.IsZero() && time.Since(p.unheard) > silentAfter
}

// flush sends all pending messages. If a message cannot be sent, or the outcome is unknown, the
// next call sends it again: duplicates do no harm.
func (p *peers) flush(ctx context.Context) error {
	for {
		messages, taken := p.next()
		if len(messages) == 0 {
			return nil
		}
		bounded, cancel := context.WithTimeout(ctx, p.timeout)
		err := p.messenger.Send(bounded, messages)
		cancel()
		p.sent(taken, taken < len(messages), err)
		if err != nil {
			return err
		}
	}
}

// next returns the messages to send now, and how many of them are from out. The digest comes last,
// because it covers all earlier messages.
func (p *peers) next() (messages []string, taken int) {
	p.mu.Lock()
	announce := p.again && time.Since(p.announced) >= aliveEvery
	if announce {
		p.again, p.alive, p.announced = false, true, time.Now()
	}
	p.mu.Unlock()
	if announce {
		p.queue.eachWaiter(p.repeat)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	taken = min(len(p.out), mostAtOnce)
	messages = slices.Clone(p.out[:taken])
	if p.alive && taken == len(p.out) {
		messages = append(messages, "alive "+p.id+" "+strconv.FormatUint(p.digest, 16)+" "+strconv.FormatUint(p.lines.clock, 10))
	}
	if len(messages) > 0 && p.unheard.IsZero() {
		p.unheard = time.Now()
	}
	return messages, taken
}

// sent records the result of sending the messages of next.
func (p *peers) sent(taken int, alive bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.unheard = time.Time{}
		return
	}
	if alive {
		p.alive = false
	}
	if p.out = p.out[taken:]; len(p.out) == 0 {
		p.out = nil
	}
}

func (p *peers) say(words ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sayLocked(words...)
}

func (p *peers) sayLocked(words ...string) {
	if len(p.out) < mostPlaces { // else the next digest shows that something is missing
		p.out = append(p.out, strings.Join(words, " "))
		p.nudge()
	}
}

func (p *peers) nudge() {
	select {
	case p.some <- struct{}{}:
	default:
	}
}

// announce sends this server's waiters to the others; at most once in a second, however many ask.
func (p *peers) announce() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.announceLocked()
}

func (p *peers) announceLocked() {
	p.outbox.again = true
	p.nudge()
}
