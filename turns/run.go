package turns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/legible"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/namespace"
)

const (
	// emptyPause is how long an entity without a message pauses: a sender has written its message, and not
	// committed yet.
	emptyPause = awake
	// heldPause is how long an entity pauses if somebody else holds its mutex.
	heldPause = 100 * time.Millisecond
	// quietMost is the maximum wait of the first message, in multiples of Config.Quiet.
	quietMost = 5
	// maxErrorText limits the text of an error in the tables.
	maxErrorText = 2000
)

// begin runs the turn of a claimed entity in a goroutine.
func (s *server) begin(life context.Context, c claimed, f *found) {
	t := &Turn{m: s.m, node: s.node, claim: c, messages: f.messages, taken: len(f.messages)}
	var ctx context.Context
	ctx, t.cancel = context.WithCancelCause(life)
	s.mu.Lock()
	s.turns[c.Token] = t
	s.mu.Unlock()
	s.running.Go(func() {
		defer s.lookNow()
		defer func() {
			s.mu.Lock()
			delete(s.turns, c.Token)
			s.mu.Unlock()
		}()
		defer t.cancel(nil)
		s.settle(life, t, s.turn(ctx, t, f))
	})
}

// An ending says how a turn without a commit ends. The zero ending is that of a commit.
type ending struct {
	given bool          // the attempt does not count
	pause time.Duration // until the next
	err   error         // of a failed attempt
	dead  bool
}

// turn takes the mutex of the entity, and runs the handler while it is held.
func (s *server) turn(ctx context.Context, t *Turn, f *found) ending {
	c := s.m.config
	if len(f.messages) == 0 {
		return ending{given: true, pause: emptyPause}
	}
	if c.Quiet > 0 && t.claim.Attempts == 1 && len(f.messages) < c.Batch && f.newest < c.Quiet && f.age < quietMost*c.Quiet {
		return ending{given: true, pause: c.Quiet - f.newest}
	}
	if t.claim.Attempts > c.MaxAttempts {
		return ending{err: fmt.Errorf("%d attempts ended without a commit: %s", c.MaxAttempts, t.claim.LastError), dead: true}
	}
	key, err := c.Namespace.Text(t.claim.Entity)
	if err != nil { // sent in SQL
		return ending{err: err, dead: true}
	}
	t.key = key
	lock, err := s.mutex(ctx, key)
	if err != nil {
		full := errors.Is(err, advisory.ErrLockTableFull)
		if again := full && s.isFull(); !again && !errors.Is(err, advisory.ErrTimeout) && ctx.Err() == nil {
			c.Logger.Warn("turns_mutex_failed", slog.String("mailbox", c.Name), slog.String("key", key.String()), slog.Any("error", err))
		}
		return ending{given: true, pause: pause.Jitter(heldPause, 0.5)}
	}
	began := time.Now()
	err = t.handle(lock.Context(), s.handler)
	if err == nil && !t.done() {
		err = s.consume(lock.Context(), t)
	}
	cause := context.Cause(lock.Context())
	defer s.hasRoom()
	if released := lock.Release(); released != nil {
		c.Logger.Warn("turns_mutex_lost", slog.String("mailbox", c.Name), slog.String("key", key.String()), slog.Any("error", released))
	}
	c.Observer.ended(c.Logger, TurnData{Key: key, Attempt: t.claim.Attempts, Messages: len(t.Messages()), Took: time.Since(began), Committed: t.done(), Err: err})
	switch {
	case t.done():
		return ending{}
	case errors.Is(cause, ErrShutdown), errors.Is(cause, advisory.ErrLost), errors.Is(cause, advisory.ErrClosed):
		return ending{given: true}
	case err == nil: // a Commit in another goroutine
		err = t.stale()
	}
	return ending{err: err, pause: pause.Backoff(t.claim.Attempts-1, c.Pause, c.MaxPause), dead: t.claim.Attempts >= c.MaxAttempts}
}

// isFull notes that the Locker is full, and reports whether that was known. Until a turn gives its lock back, or for a second,
// the server claims nothing.
func (s *server) isFull() (known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known = time.Now().Before(s.fullUntil)
	s.fullUntil = time.Now().Add(lookEvery)
	return known
}

// hasRoom notes that a turn has given its lock back.
func (s *server) hasRoom() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fullUntil = time.Time{}
}

// mutex takes the mutex of an entity. The previous turn can still hold it, because a turn gives it back after its
// commit.
func (s *server) mutex(ctx context.Context, key namespace.Key) (*advisory.Lock, error) {
	label := "turns/" + s.m.config.Name
	lock, err := s.m.config.Locker.With(advisory.Options{Label: label}).TryAcquire(ctx, key)
	if errors.Is(err, advisory.ErrHeld) {
		return s.m.config.Locker.With(advisory.Options{Label: label, Wait: mutexWait}).Acquire(ctx, key)
	}
	return lock, err
}

// consume commits a turn whose handler returned nil, even if its context has ended: the token decides.
func (s *server) consume(ctx context.Context, t *Turn) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementBound)
	defer cancel()
	return t.Commit(ctx, nil)
}

// handle calls the handler. A panic and runtime.Goexit are errors.
func (t *Turn) handle(ctx context.Context, handler Handler) error {
	err := background.Outlive(func() error { return handler(ctx, t) })
	if background.DidNotReturn(err) {
		return fmt.Errorf("turns: handler did not return: %w", err)
	}
	return err
}

// settle ends a turn in the tables, unless it was committed. It retries until the node's life ends; after
// that, other nodes reclaim the turn.
func (s *server) settle(life context.Context, t *Turn, e ending) {
	if e == (ending{}) {
		return
	}
	if e.err != nil {
		s.m.config.Logger.Warn("turns_turn_failed", slog.String("mailbox", s.m.config.Name), slog.String("key", t.key.String()),
			slog.Int("attempt", t.claim.Attempts), slog.Bool("dead", e.dead), slog.String("error", textOf(e.err)))
	}
	for failures := 0; ; failures++ {
		err := s.end(life, t, e)
		if err == nil {
			return
		}
		s.m.config.Logger.Warn("turns_settle_failed", slog.String("mailbox", s.m.config.Name), slog.Any("error", err))
		if pause.For(life, pause.Backoff(failures, 100*time.Millisecond, 10*time.Second)) != nil {
			return
		}
	}
}

// end is one attempt to end a turn. A stale turn is not an error: somebody else has ended it.
func (s *server) end(life context.Context, t *Turn, e ending) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(life), statementBound)
	defer cancel()
	if e.given {
		_, err := ask[bool](ctx, s.m, `SELECT pglatch_turns.give_back($1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.int8, $4::pg_catalog.text::pg_catalog.interval)`,
			t.claim.Entity, t.claim.Token, interval(e.pause))
		return err
	}
	// Those that the claim took. Messages that More took have had no attempt of their own, so they
	// are not dead yet.
	first := t.Messages()[:t.taken]
	_, err := ask[bool](ctx, s.m, `SELECT pglatch_turns.fail($1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.int8, $4::pg_catalog.text::pg_catalog.int8[],
		$5::pg_catalog.text, $6::pg_catalog.text::pg_catalog.interval, $7::pg_catalog.bool, $8::pg_catalog.bool)`,
		t.claim.Entity, t.claim.Token, arrayOf(first), textOf(e.err), interval(e.pause), e.dead, s.m.config.OnDead == Stop)
	return err
}

// textOf is the text of a handler's error, whose method need not return.
func textOf(err error) string {
	text := "an error without a text: its method did not return"
	_ = background.Outlive(func() error { text = err.Error(); return nil })
	return legible.Clamp(legible.Line(strings.ToValidUTF8(text, "?")), maxErrorText)
}
