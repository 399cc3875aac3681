package turns

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/identity"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/namespace"
)

const (
	// lookEvery is how often an idle server looks.
	lookEvery = time.Second
	// awake is how long a server looks often after it has found something. Until then, senders need not
	// notify it.
	awake = 250 * time.Millisecond
	// awakeEvery is how often a server looks in that time.
	awakeEvery = 10 * time.Millisecond
	// behind is how much earlier than the last claimed entity the next one can have been ready: a sender's transaction
	// ends after its message got its time. A look finds those that ended later.
	behind = time.Second
	// claimMost limits the entities of one claim.
	claimMost = 500
	// farLook is how long a look may take before the loop leaves the first entries of the index to searchFar.
	farLook = 100 * time.Millisecond
	// allEvery is how often a look counts all turns of the node. After a claim without an answer, each look does for so long.
	allEvery = time.Minute
	// sweepEvery is how often a server sweeps instead of looking.
	sweepEvery = 10 * time.Minute
	// mutexWait is how long a turn waits for the mutex of its entity if somebody has it.
	mutexWait = 300 * time.Millisecond
	// statementBound limits the statements that end a turn whose context has ended.
	statementBound = 10 * time.Second
)

// Serve handles the mailbox's messages until ctx ends. Any number of nodes may serve one mailbox.
//
// When ctx ends, Serve claims no more turns. Running turns continue for Config.Finish, and then their contexts
// end with ErrShutdown. Messages that they did not commit are at once available to other nodes, and the attempt
// does not count. Serve returns nil when all handlers have returned. A handler that ignores its context keeps
// Serve from returning.
//
// Serve returns an error only when it starts: *ConfigError, ErrNotReady, or an error of the driver. It
// logs later errors, and retries.
func (m *Mailbox) Serve(ctx context.Context, handler Handler) error {
	switch {
	case m.config.Locker == nil:
		return &ConfigError{"Config.Locker", "nil", "open one on the database of Pool: advisory.Open"}
	case handler == nil:
		return fmt.Errorf("%w: the handler is nil", ErrInvalid)
	}
	if err := m.register(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	for failures := 0; ctx.Err() == nil; failures++ {
		began := time.Now()
		s := &server{
			m: m, handler: handler, wake: make(chan struct{}, 1), targets: make(chan target, 1), turns: map[int64]*Turn{},
			node: cmp.Or(m.config.Node, identity.Random()) + "/" + rand.Text()[:8],
		}
		err := s.run(ctx)
		if ctx.Err() == nil {
			m.config.Logger.Warn("turns_node_lost", slog.String("mailbox", m.config.Name), slog.String("node", s.node), slog.Any("error", err))
		}
		if time.Since(began) > time.Minute {
			failures = 0
		}
		_ = pause.For(ctx, pause.Backoff(failures, 100*time.Millisecond, 10*time.Second))
	}
	return nil
}

// A server is one node of a mailbox, from the grant of the node's lock to its loss or the end of Serve.
type server struct {
	m       *Mailbox
	handler Handler
	node    string
	wake    chan struct{} // has one element if the loop is to look at once
	targets chan target   // the node to watch

	running sync.WaitGroup
	mu      sync.Mutex
	turns   map[int64]*Turn // by token

	far   atomic.Bool  // looks from the first entry of the index on take long
	first atomic.Int64 // when the first entity became ready, if searchFar has found that; 0 = the loop has used it

	fullUntil time.Time // until then the Locker has no room for a further mutex

	// The loop's.
	awakeUntil, lastLook, lastSweep time.Time
	lastAll, doubtUntil             time.Time // of looks at all turns: the last one, and until when each look is one
	lookTook                        time.Duration
	since                           int64 // claims take entities that have been ready since then; microseconds since 1970, of the server's clock
}

// nodeKey is the lock of a node, in the half of the bigint keys that no namespace uses.
func nodeKey(mailbox, node string) (namespace.Key, int64) {
	sum := sha256.Sum256(fmt.Appendf(nil, "pglatch turns\x00%s\x00%s", mailbox, node))
	n := int64(binary.BigEndian.Uint64(sum[:])) | math.MinInt64
	return namespace.SingleRaw(n), n
}

// run serves until ctx ends or the node's lock is lost, and returns when all turns have ended.
func (s *server) run(ctx context.Context) error {
	life, end := context.WithCancelCause(context.WithoutCancel(ctx)) // turns outlive ctx
	defer end(nil)
	key, n := nodeKey(s.m.config.Name, s.node)
	acquire := context.AfterFunc(ctx, func() { end(context.Cause(ctx)) })
	lock, err := s.m.config.Locker.With(advisory.Options{Label: "turns/" + s.m.config.Name + " node"}).Acquire(life, key)
	if err != nil {
		return err
	}
	if !acquire() { // ctx has ended
		return lock.Release()
	}
	defer context.AfterFunc(lock.Context(), func() { end(context.Cause(lock.Context())) })()
	if err := s.m.exec(ctx, `SELECT pglatch_turns.join_node($1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.int8)`, s.node, n); err != nil {
		return errors.Join(err, lock.Release())
	}
	stopListening := background.Run(life, s.listen)
	stopWatching := background.Run(life, s.watch)
	stopSearching := background.Run(life, s.searchFar)
	s.loop(ctx, life)
	stopSearching()
	stopWatching()
	s.drain(life, end)
	stopListening()
	lost := context.Cause(lock.Context())
	err = lock.Release()
	s.leave(ctx)
	return cmp.Or(lost, err)
}

// loop claims and looks until ctx or life ends.
func (s *server) loop(ctx, life context.Context) {
	s.lastSweep = time.Now()
	woken, failures := true, 0
	for {
		next, err := s.step(ctx, life, woken)
		if err != nil && ctx.Err() == nil && life.Err() == nil {
			s.m.config.Logger.Warn("turns_look_failed", slog.String("mailbox", s.m.config.Name), slog.Any("error", err))
			next = pause.Backoff(failures, awakeEvery, lookEvery)
			failures++
		} else {
			failures = 0
		}
		timer := time.NewTimer(next)
		woken = false
		select {
		case <-s.wake:
			woken = true
		case <-timer.C:
		case <-ctx.Done():
		case <-life.Done():
		}
		timer.Stop()
		if ctx.Err() != nil || life.Err() != nil {
			return
		}
	}
}

// step claims if there may be work, looks if it is time, and returns when to do so again. woken: a message arrived, or
// a worker is free again.
func (s *server) step(ctx, life context.Context, woken bool) (next time.Duration, err error) {
	claimed := false
	if woken || time.Now().Before(s.awakeUntil) {
		if claimed, err = s.fill(ctx, life); err != nil {
			return 0, err
		}
	}
	if claimed {
		s.awakeUntil = time.Now().Add(awake)
	}
	// While there is work, looks take a fifth of the time at most. One is slow if a snapshot was held for very many turns.
	if due := time.Until(s.lastLook.Add(max(lookEvery, 5*s.lookTook))); due > 0 && (claimed || time.Now().Before(s.awakeUntil)) {
		return min(awakeEvery, due), nil
	}
	if time.Since(s.lastSweep) >= sweepEvery {
		s.lastSweep = time.Now()
		return lookEvery, s.m.exec(ctx, `SELECT pglatch_turns.sweep($1::pg_catalog.text, $2::pg_catalog.text::pg_catalog.interval)`, interval(s.m.config.KeepDead))
	}
	seen, err := s.look(ctx)
	if err != nil {
		return 0, err
	}
	if seen <= 0 && s.free() > 0 {
		if claimed, err = s.fill(ctx, life); err != nil {
			return 0, err
		}
		if claimed {
			s.awakeUntil = time.Now().Add(awake)
		}
		return awakeEvery, nil
	}
	if s.free() == 0 {
		return lookEvery, nil
	}
	return max(min(seen, lookEvery), time.Millisecond), nil
}

// fill claims until no worker is free or no entity is ready, and reports whether it began a turn.
func (s *server) fill(ctx, life context.Context) (claimed bool, err error) {
	for {
		most := min(s.free(), claimMost)
		if most == 0 {
			return claimed, nil
		}
		claims, all, err := s.claim(ctx, most)
		if err != nil {
			return claimed, err
		}
		for _, c := range claims {
			s.begin(life, c, all[c.Entity])
		}
		claimed = claimed || len(claims) > 0
		if len(claims) < most {
			return claimed, nil
		}
	}
}

// free is how many more turns may begin.
func (s *server) free() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.fullUntil) {
		return 0
	}
	return s.m.config.Concurrency - len(s.turns)
}

// lookNow makes the loop claim at once.
func (s *server) lookNow() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// drain lets the turns continue for Config.Finish, unless the node's lock is lost. After that, their
// contexts end.
func (s *server) drain(life context.Context, end context.CancelCauseFunc) {
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	timer := time.NewTimer(s.m.config.Finish)
	defer timer.Stop()
	select {
	case <-done:
	case <-life.Done():
	case <-timer.C:
	}
	end(ErrShutdown)
	<-done
}

// leave gives back the remaining turns, now that nobody holds the node's lock.
func (s *server) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statementBound)
	defer cancel()
	if err := s.reclaim(ctx, s.node); err != nil {
		s.m.config.Logger.Warn("turns_leave_failed", slog.String("mailbox", s.m.config.Name), slog.Any("error", err))
	}
}
