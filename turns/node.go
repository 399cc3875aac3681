package turns

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/namespace"
)

// look sends the only query of an idle server, and acts on the answer: it reclaims the turns of dead nodes, and
// interrupts its own. It returns when the next entity is ready.
func (s *server) look(ctx context.Context) (time.Duration, error) {
	s.lastLook = time.Now()
	tokens := s.tokens() // the loop alone adds to them, and a turn leaves after its row was changed
	all := s.lastLook.Before(s.doubtUntil) || s.lastLook.Sub(s.lastAll) >= allEvery
	since := int64(0)
	if s.isFar() {
		since = s.since
	}
	var text []byte
	if err := s.m.config.Pool.QueryRow(ctx, `SELECT pglatch_turns.look($1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.int8, $4::pg_catalog.int8[], $5::pg_catalog.bool)::pg_catalog.text`,
		s.m.config.Name, s.node, since, tokens, all).Scan(&text); err != nil {
		return 0, failed(err)
	}
	s.lookTook = time.Since(s.lastLook)
	if all {
		s.lastAll = s.lastLook
	} else if since == 0 && s.lookTook > farLook {
		s.far.Store(true)
	}
	var seen struct {
		Now         int64    `json:"now"`
		Due         *float64 `json:"due"`
		Dead        []string `json:"dead"`
		Next        *target  `json:"next"`
		Mine        int      `json:"mine"`
		Interrupted bool     `json:"interrupted"`
		Count       bool     `json:"count"`
	}
	if err := json.Unmarshal(text, &seen); err != nil {
		return 0, fmt.Errorf("turns: answer of the server: %w", err)
	}
	s.since = seen.Now - behind.Microseconds()
	if seen.Due != nil {
		s.since += int64(min(*seen.Due, 0) * 1000) // from the entity that has been ready for longest
	}
	for _, node := range seen.Dead {
		if err := s.reclaim(ctx, node); err != nil {
			return 0, err
		}
	}
	if seen.Interrupted {
		if err := s.interrupts(ctx, s.m.config.Pool); err != nil {
			return 0, err
		}
	}
	if seen.Count {
		if err := s.m.exec(ctx, `SELECT pglatch_turns.count_all($1::pg_catalog.text, true)`); err != nil {
			return 0, err
		}
	}
	if seen.Mine > len(tokens) {
		return 0, s.m.exec(ctx, `SELECT pglatch_turns.orphans($1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.int8[])`, s.node, s.tokens())
	}
	s.aim(seen.Next)
	switch {
	case len(seen.Dead) > 0:
		return 0, nil
	case seen.Due == nil:
		return lookEvery, nil
	}
	return time.Duration(*seen.Due * float64(time.Millisecond)), nil
}

// tokens are those of the turns that run here.
func (s *server) tokens() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	tokens := make([]int64, 0, len(s.turns))
	for token := range s.turns {
		tokens = append(tokens, token)
	}
	return tokens
}

// isFar reports whether the first entry of the index is too far away for the loop. Then its looks begin where its claims do.
func (s *server) isFar() bool { return s.since > 0 && s.far.Load() }

// searchFar looks from the first entry of the index on, beside the loop, while that takes long: it finds entities that a claim
// skipped because their senders committed late. It takes a fifth of the time at most.
func (s *server) searchFar(ctx context.Context) {
	wait := lookEvery
	for pause.For(ctx, wait) == nil {
		wait = lookEvery
		if !s.far.Load() {
			continue
		}
		began := time.Now()
		first, err := ask[*int64](ctx, s.m, `SELECT pglatch_turns.earliest($1::pg_catalog.text)`)
		took := time.Since(began)
		wait = max(wait, 4*took)
		if err != nil {
			continue
		}
		if took < farLook {
			s.far.Store(false)
		}
		if first != nil {
			s.first.Store(*first)
			s.lookNow()
		}
	}
}

// reclaim makes the turns of a dead node ready.
func (s *server) reclaim(ctx context.Context, node string) error {
	return s.m.exec(ctx, `SELECT pglatch_turns.reclaim($1::pg_catalog.text, $2::pg_catalog.text)`, node)
}

// A target is the node that this one watches, so that its turns go on in milliseconds when its process dies.
type target struct {
	Node string `json:"node"`
	Key  string `json:"key"`
}

// aim changes the target of watch. nil = there is no node with turns.
func (s *server) aim(next *target) {
	var t target
	if next != nil {
		t = *next
	}
	select {
	case <-s.targets: // of before, which nobody has read
	default:
	}
	s.targets <- t
}

// watch waits for the lock of the target, which becomes free when its process has ended.
func (s *server) watch(ctx context.Context) {
	var current target
	stop, ended := func() {}, make(chan struct{}, 1)
	defer func() { stop() }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ended:
			stop()
			stop, current = func() {}, target{} // the next look may find it again
		case t := <-s.targets:
			if t == current {
				continue
			}
			stop()
			stop, current = func() {}, t
			if key, err := strconv.ParseInt(t.Key, 10, 64); err == nil {
				ended = make(chan struct{}, 1)
				stop = s.await(ctx, namespace.SingleRaw(key), t.Node, ended)
			}
		}
	}
}

// await waits for the lock of a node in the background, and reclaims the node's turns when it has the
// lock.
func (s *server) await(ctx context.Context, key namespace.Key, node string, ended chan<- struct{}) (stop func()) {
	return background.Run(ctx, func(ctx context.Context) {
		defer func() { ended <- struct{}{} }()
		lock, err := s.m.config.Locker.With(advisory.Options{Wait: advisory.NoTimeout, Shared: true, Label: "turns/" + s.m.config.Name + " watch"}).Acquire(ctx, key)
		if err != nil {
			_ = pause.For(ctx, lookEvery) // no connection is free: the looks find the node
			return
		}
		if err = lock.Release(); err == nil {
			err = s.reclaim(ctx, node)
		}
		if err != nil {
			s.m.config.Logger.Warn("turns_reclaim_failed", slog.String("mailbox", s.m.config.Name), slog.Any("error", err))
		}
		s.lookNow()
	})
}

// listen receives notifications of new messages, and of turns that must end. Without notifications, looks
// detect both.
func (s *server) listen(ctx context.Context) {
	for failures := 0; ctx.Err() == nil; failures++ {
		err := s.listenOnce(ctx, func() { failures = 0 })
		if ctx.Err() != nil {
			return
		}
		s.m.config.Logger.Debug("turns_listen_failed", slog.String("mailbox", s.m.config.Name), slog.Any("error", err))
		_ = pause.For(ctx, pause.Backoff(failures, 100*time.Millisecond, 10*time.Second))
	}
}

func (s *server) listenOnce(ctx context.Context, listening func()) error {
	lent, err := s.m.config.Pool.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := lent.Hijack() // it keeps the state of a listener
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{"pglatch_turns/" + s.m.config.Name}.Sanitize()); err != nil {
		return err
	}
	listening()
	s.lookNow() // for what came before
	if err := s.interrupts(ctx, conn); err != nil {
		return err
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		if n.Payload != "interrupt" {
			s.lookNow()
			continue
		}
		// On this connection: handlers can have all of the pool's.
		if err := s.interrupts(ctx, conn); err != nil {
			return err
		}
	}
}

// A querier is a pool or a connection.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// interrupts ends the contexts of this node's turns that somebody interrupted.
func (s *server) interrupts(ctx context.Context, db querier) error {
	rows, err := db.Query(ctx, `SELECT token, reason FROM pglatch_turns.interrupted($1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.int8[])`, s.m.config.Name, s.node, s.tokens())
	if err != nil {
		return failed(err)
	}
	type request struct {
		Token  int64
		Reason string
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[request])
	if err != nil {
		return failed(err)
	}
	for _, r := range list {
		s.mu.Lock()
		t := s.turns[r.Token]
		s.mu.Unlock()
		if t != nil {
			t.cancel(&InterruptedError{r.Reason})
		}
	}
	return nil
}

// Interrupt ends the context of the entity's running turn, on whatever node it runs, with an *InterruptedError as its
// cause. The handler decides what happens to the messages: it can commit, with context.WithoutCancel, or return an
// error, so that they are delivered again. If no turn is running, the error is ErrNotRunning.
func (m *Mailbox) Interrupt(ctx context.Context, entity namespace.Key, reason string) error {
	text, err := m.entityOf(entity)
	if err != nil {
		return err
	}
	did, err := ask[bool](ctx, m, `SELECT pglatch_turns.interrupt($1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.text)`, text, reason)
	if err == nil && !did {
		err = fmt.Errorf("%w: %s", ErrNotRunning, entity)
	}
	return err
}
