package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/internal/test/configdoc"
	"github.com/pglatch/pglatch/lease"
)

// A NextVersion is a program with the next version of the schema.
type NextVersion struct{ schema pgtable.Schema }

// Next returns a program whose version of the schema is this one's with a change.
func Next(change string) NextVersion {
	next := schema
	next.Version++
	next.SQL += change
	return NextVersion{next}
}

// New is the program's New.
func (v NextVersion) New(config Config) (*Store, error) {
	s, err := New(config)
	if err != nil {
		return nil, err
	}
	s.schema = v.schema
	return s, nil
}

// Guard is the program's Guard.
func (v NextVersion) Guard(ctx context.Context, tx PgxTx, c lease.Claim) error {
	return guardOf(c, v.schema.Version).Guard(ctx, pgsession.FromPgx(tx))
}

func TestCommentsOfTheConfigSayItsDefaults(t *testing.T) {
	t.Parallel()
	config, err := Config{DSN: "postgres://localhost/shop"}.validated()
	require.NoError(t, err)
	configdoc.Check(t, config, "DSN")
}

// A session that is ended while it connects, and a server that goes away then, are no reason
// to give up for good.
func TestAConnectionThatFailsInTheMakingIsBusyUnlessTheServerRefusesIt(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		&pgconn.PgError{Code: "57P01"}, &pgconn.PgError{Code: "57P02"}, &pgconn.PgError{Code: "57P03"}, &pgconn.PgError{Code: "53300"},
		&pgconn.PgError{Code: "08006"}, io.ErrUnexpectedEOF, io.EOF, &net.OpError{Op: "dial", Err: errors.New("refused")},
	} {
		assert.ErrorIs(t, unreachable(err), lease.ErrBusy, "%v", err)
	}
	for _, err := range []error{&pgconn.PgError{Code: "28P01"}, &pgconn.PgError{Code: "3D000"}, &pgconn.PgError{Code: "42501"}} {
		assert.ErrorIs(t, unreachable(err), lease.ErrNotReady, "%v", err)
	}
}

// A server takes statements one after the other, and lets a test answer them. It is its
// own connection.
type server struct{ statements chan asked }

type asked struct {
	ctx    context.Context //nolint:containedctx // it is what is looked at
	names  []string
	wait   string
	answer chan reply
}

type reply struct {
	outcomes []string
	err      error
}

func (s server) connect(context.Context) (connection, error) { return s, nil }

func (s server) Release() {}

func (s server) operate(ctx context.Context, all []operation, wait string) ([]answer, error) {
	st := asked{ctx: ctx, wait: wait, answer: make(chan reply)}
	for _, o := range all {
		st.names = append(st.names, o.name)
	}
	s.statements <- st
	r := <-st.answer
	var answers []answer
	for _, outcome := range r.outcomes {
		answers = append(answers, answer{outcome: outcome})
	}
	return answers, r.err
}

// A crowd is a group all of whose statements are in flight, and calls that wait.
type crowd struct {
	*testing.T
	server server
	group  *group
	busy   []asked
	wg     sync.WaitGroup
}

func newCrowd(t *testing.T) *crowd {
	t.Helper()
	c := &crowd{T: t, server: server{make(chan asked)}}
	c.group = newGroup(c.server)
	for range maxInFlight {
		c.wg.Go(func() { _, _ = c.group.do(context.Background(), "patience", operation{name: "first"}) })
		c.busy = append(c.busy, <-c.server.statements)
	}
	t.Cleanup(func() {
		c.wg.Wait()
		c.group.close()
		_, err := c.group.do(context.Background(), "", operation{})
		require.ErrorIs(t, err, lease.ErrClosed)
	})
	return c
}

type result struct {
	answers []answer
	err     error
}

// ask does operations on a name, which wait when it returns.
func (c *crowd) ask(ctx context.Context, name string, n int) <-chan result {
	c.Helper()
	before := c.group.calls.Length()
	results := make(chan result, 1)
	c.wg.Go(func() {
		var all []operation
		for range n {
			all = append(all, operation{name: name})
		}
		answers, err := c.group.do(ctx, "patience", all...)
		results <- result{answers, err}
	})
	for c.group.calls.Length() == before {
		runtime.Gosched()
	}
	return results
}

// free ends a statement that is in flight, so that the next goes out.
func (c *crowd) free() asked {
	c.busy[0].answer <- reply{outcomes: []string{done}}
	c.busy = c.busy[1:]
	return <-c.server.statements
}

func (c *crowd) freeAll() {
	for _, s := range c.busy {
		s.answer <- reply{outcomes: []string{done}}
	}
}

func TestWhatWaitsGoesOutTogetherInTheOrderOfNames(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	b, a, pair := c.ask(t.Context(), "b", 1), c.ask(t.Context(), "a", 1), c.ask(t.Context(), "a", 2)
	s := c.free()
	require.Equal(t, []string{"a", "a", "a", "b"}, s.names)
	s.answer <- reply{outcomes: []string{"1", "2", "3", "4"}}
	assert.Equal(t, []answer{{outcome: "1"}}, (<-a).answers)
	assert.Equal(t, []answer{{outcome: "2"}, {outcome: "3"}}, (<-pair).answers)
	assert.Equal(t, []answer{{outcome: "4"}}, (<-b).answers)
	c.freeAll()
}

func TestWhatHasToWaitIsTriedAgainAlone(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a, pair := c.ask(t.Context(), "a", 1), c.ask(t.Context(), "b", 2)
	s := c.free()
	require.Equal(t, batchWait, s.wait)
	s.answer <- reply{outcomes: []string{done, busy, "refused"}}
	require.Equal(t, done, (<-a).answers[0].outcome, "the others do not wait")
	again := <-c.server.statements
	require.Equal(t, []string{"b"}, again.names)
	require.Equal(t, "patience", again.wait)
	again.answer <- reply{outcomes: []string{done}}
	second := <-c.server.statements // what was refused was refused because of the first
	require.Equal(t, []string{"b"}, second.names)
	require.Equal(t, batchWait, second.wait)
	broken := errors.New("connection is gone")
	second.answer <- reply{err: broken}
	r := <-pair
	require.NoError(t, r.err)
	require.Equal(t, done, r.answers[0].outcome, "what was committed stays")
	require.ErrorIs(t, r.answers[1].err, broken)
	c.freeAll()
}

func TestTheSecondOfTwoIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	pair := c.ask(t.Context(), "b", 2)
	c.free().answer <- reply{outcomes: []string{done, busy}}
	require.Equal(t, []answer{{outcome: done}, {outcome: busy}}, (<-pair).answers)
	c.freeAll()
}

func TestThoseWhoWaitForARowLeaveThePlacesToOthers(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	for _, s := range c.busy {
		s.answer <- reply{outcomes: []string{busy}}
	}
	var waiting []asked
	for range c.busy {
		waiting = append(waiting, <-c.server.statements)
		require.Equal(t, "patience", waiting[len(waiting)-1].wait)
	}
	other := make(chan error, 1)
	c.wg.Go(func() {
		_, err := c.group.do(t.Context(), "patience", operation{name: "other"})
		other <- err
	})
	(<-c.server.statements).answer <- reply{outcomes: []string{done}}
	require.NoError(t, <-other)
	for _, s := range waiting {
		s.answer <- reply{outcomes: []string{done}}
	}
}

// A call waits as long as it may for any lock of the server, even if it shares its statement with none.
func TestALoneCallThatGetsNoLockSoonIsTriedAgainWithPatience(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	a := c.ask(t.Context(), "a", 1)
	s := c.free()
	require.Equal(t, batchWait, s.wait)
	s.answer <- reply{err: failed(&pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "55P03"})}
	again := <-c.server.statements
	require.Equal(t, "patience", again.wait)
	again.answer <- reply{err: failed(&pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "55P03"})}
	require.ErrorIs(t, (<-a).answers[0].err, lease.ErrBusy)
	c.freeAll()
}

func TestAStatementThatFailsIsOneOfEach(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{
		"busy":    busyError(errors.New("deadlock")),
		"refused": failed(&pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "22P05"}),
		"perhaps": errors.New("connection is gone"),
		"ended":   failed(&pgconn.PgError{SeverityUnlocalized: "FATAL", Code: "57P01"}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t)
			a, b := c.ask(t.Context(), "a", 1), c.ask(t.Context(), "b", 1)
			c.free().answer <- reply{err: failure}
			if name == "busy" || name == "refused" { // nothing was done, so each can be tried
				for range 2 {
					s := <-c.server.statements
					require.Len(t, s.names, 1)
					s.answer <- reply{outcomes: []string{done}}
				}
				require.NoError(t, (<-a).err)
				require.NoError(t, (<-b).err)
			} else {
				require.ErrorIs(t, (<-a).err, failure)
				require.ErrorIs(t, (<-b).err, failure)
			}
			c.freeAll()
		})
	}
}

func TestACallerThatGoesKeepsNobody(t *testing.T) {
	t.Parallel()
	c := newCrowd(t)
	gone, cancel := context.WithCancel(t.Context())
	early := c.ask(gone, "early", 1)
	cancel()
	require.ErrorIs(t, (<-early).err, lease.ErrBusy, "nothing was sent")

	first, endFirst := context.WithCancel(t.Context())
	second, endSecond := context.WithCancel(t.Context())
	a, b := c.ask(first, "a", 1), c.ask(second, "b", 1)
	s := c.free()
	require.Equal(t, []string{"a", "b"}, s.names)
	endFirst()
	err := (<-a).err
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, lease.ErrBusy, "what came of it is unknown")
	require.NoError(t, s.ctx.Err(), "another waits for the answer")
	endSecond()
	require.Error(t, (<-b).err)
	<-s.ctx.Done()
	s.answer <- reply{err: context.Cause(s.ctx)}
	c.freeAll()
}
