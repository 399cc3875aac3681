package turnstest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

// A Database is a server for package turns.
type Database interface {
	// Open returns a process with connections of its own, and makes its mailbox. It sets the Config's Pool and Locker.
	Open(config turns.Config) (*Process, error)
}

var _ Database = (*Server)(nil)

// A Harness configures the test of a Database.
type Harness struct {
	// New makes an empty database, and closes it with t.Cleanup. Required.
	New func(t *testing.T) Database

	// Around runs a test case, for example in a bubble: synctest.Test. nil = the test is called
	// directly.
	Around func(t *testing.T, test func(t *testing.T))
}

// Run runs the conformance suite as parallel subtests of t.
func Run(t *testing.T, h Harness) { //nolint:thelper // it is the test
	require.NotNil(t, h.New, "turnstest: Harness.New")
	if h.Around == nil {
		h.Around = func(t *testing.T, test func(t *testing.T)) { test(t) } //nolint:thelper // it is the test
	}
	for _, c := range slices.Concat(sendCases, takeCases, endCases) {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h.Around(t, func(t *testing.T) { c.run(newSuite(t, h.New(t))) }) //nolint:thelper // it is the test
		})
	}
}

// A testCase is one property.
type testCase struct {
	name string
	run  func(s *suite)
}

// A suite runs one test case on one database.
type suite struct {
	*testing.T
	db   Database
	over chan struct{} // closed at the end of the case: turns that are held end
	end  func()
}

func newSuite(t *testing.T, db Database) *suite {
	t.Helper()
	s := &suite{T: t, db: db, over: make(chan struct{})}
	s.end = sync.OnceFunc(func() { close(s.over) })
	return s
}

// bound is the maximum duration of anything that should come soon.
const bound = 30 * time.Second

var entities = namespace.Must(1, "entity")

func key(s *suite, name string) namespace.Key {
	s.Helper()
	k, err := entities.Text(name)
	require.NoError(s, err)
	return k
}

// open returns a process, with changes of its configuration.
func (s *suite) open(changes ...func(*turns.Config)) *Process {
	s.Helper()
	config := turns.Config{Name: "box", Namespace: entities, Pause: time.Millisecond, MaxPause: time.Millisecond}
	for _, change := range changes {
		change(&config)
	}
	p, err := s.db.Open(config)
	require.NoError(s, err)
	s.Cleanup(p.Close)
	return p
}

// serve serves until stop, or the end of the test.
func (s *suite) serve(p *Process, handler turns.Handler) (stop func()) {
	s.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.Context()))
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx, handler) }()
	stop = sync.OnceFunc(func() {
		cancel()
		timer := time.NewTimer(bound)
		defer timer.Stop()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) { // it had begun
				assert.NoError(s, err)
			}
		case <-timer.C:
			assert.Fail(s, "Serve does not return")
		}
	})
	s.Cleanup(func() {
		s.end()
		stop()
	})
	return stop
}

func (s *suite) send(p *Process, entity, text string) turns.Ticket {
	s.Helper()
	return s.sendID(p, entity, text, "")
}

func (s *suite) sendID(p *Process, entity, text, id string) turns.Ticket {
	s.Helper()
	ticket, err := p.Post(s.Context(), key(s, entity), turns.Message{ID: id, Body: []byte(text), Trace: "trace of " + id})
	require.NoError(s, err)
	assert.Equal(s, []string{entity, id}, []string{ticket.Entity, ticket.ID})
	return ticket
}

// refused requires that a message cannot be sent.
func (s *suite) refused(p *Process, entity, text string, want error) {
	s.Helper()
	_, err := p.Post(s.Context(), key(s, entity), turns.Message{Body: []byte(text)})
	require.ErrorIs(s, err, want)
}

// begin begins a transaction that is rolled back at the end of the test, unless it has ended.
func (s *suite) begin(p *Process) pgx.Tx {
	s.Helper()
	tx, err := p.Pool.Begin(s.Context())
	require.NoError(s, err)
	s.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(s.Context())) })
	return tx
}

// wait waits for the end of a message.
func (s *suite) wait(p *Process, ticket turns.Ticket) turns.Outcome {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), bound)
	defer cancel()
	o, err := p.Wait(ctx, ticket)
	require.NoError(s, err)
	return o
}

// letters waits until there are some dead letters, and returns their texts.
func (s *suite) letters(p *Process, n int) []turns.DeadLetter {
	s.Helper()
	for end := time.Now().Add(bound); ; s.pause(10 * time.Millisecond) {
		letters, err := p.DeadLetters(s.Context(), namespace.Key{}, 0, 100)
		require.NoError(s, err)
		if len(letters) == n {
			return letters
		}
		require.Less(s, time.Now(), end, "there are %d dead letters", len(letters))
	}
}

// pause waits for time to pass.
func (s *suite) pause(d time.Duration) { _ = pause.For(s.Context(), d) }

// receive waits for a value that should come soon.
func receive[T any](s *suite, from <-chan T) (v T) {
	s.Helper()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case v = <-from:
	case <-timer.C:
		require.Fail(s, "nothing comes")
	}
	return v
}

// bodies are the texts of messages.
func bodies(messages []turns.Message) (all []string) {
	for _, m := range messages {
		all = append(all, string(m.Body))
	}
	return all
}

// A recorder is a handler that records the texts of its turns, each after its commit.
type recorder struct {
	turns chan []string
	mu    sync.Mutex
	all   map[string][]string
}

func newRecorder() *recorder {
	return &recorder{turns: make(chan []string, 1000), all: map[string][]string{}}
}

func (r *recorder) handle(ctx context.Context, t *turns.Turn) error {
	texts := bodies(t.Messages())
	err := t.Commit(ctx, nil)
	if err == nil {
		r.mu.Lock()
		r.all[t.Entity().Entity()] = append(r.all[t.Entity().Entity()], texts...)
		r.mu.Unlock()
		r.turns <- texts
	}
	return err
}

// of returns the texts of an entity.
func (r *recorder) of(entity string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all[entity])
}

// A held is a turn that waits until the test lets it continue.
type held struct {
	*turns.Turn
	ctx context.Context //nolint:containedctx // of the turn
	end chan error      // what the handler returns
}

// hold returns a handler whose turns wait, and the turns.
func (s *suite) hold() (turns.Handler, chan held) {
	all := make(chan held, 100)
	return func(ctx context.Context, t *turns.Turn) error {
		h := held{t, ctx, make(chan error, 1)}
		all <- h
		select {
		case err := <-h.end:
			return err
		case <-s.over:
			return ctx.Err()
		}
	}, all
}
