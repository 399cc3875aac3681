package clients_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// A crowd is workers of all languages that work on the same locks.
type crowd struct {
	t       *testing.T
	setup   setup
	workers []*worker
	names   int
	written [][]string // of those that were killed
}

func (c *crowd) join(l language) {
	c.t.Helper()
	c.names++
	s := c.setup
	s.Load = l.name + string(rune('a'+c.names))
	c.workers = append(c.workers, l.start(c.t, s))
}

// replace kills the eldest worker, in the middle of what it does, and has another join.
func (c *crowd) replace(l language) {
	c.t.Helper()
	c.written = append(c.written, c.workers[0].kill())
	c.workers = c.workers[1:]
	c.join(l)
}

// lines is how much the workers have written that nobody has read.
func (c *crowd) lines() (n int) {
	for _, w := range c.workers {
		n += w.Stdout.Unread()
	}
	return n
}

// await waits until so much more was written.
func (c *crowd) await(more int) {
	c.t.Helper()
	target := c.lines() + more
	await.Until(c.t, 2*await.Patience, func() bool { return c.lines() >= target }, "no load")
}

// history ends the workers and returns what they were answered.
func (c *crowd) history() *leasetest.History {
	c.t.Helper()
	for _, w := range c.workers {
		c.written = append(c.written, w.kill())
	}
	h := leasetest.NewHistory()
	for _, lines := range c.written {
		calls := make(map[int]int) // the place of each in ops
		var ops []leasetest.Operation
		for _, line := range lines {
			var o struct {
				leasetest.Operation

				Call int `json:"call"`
			}
			require.NoError(c.t, json.Unmarshal([]byte(line), &o), line)
			if at, known := calls[o.Call]; known {
				ops[at] = o.Operation
				continue
			}
			calls[o.Call] = len(ops)
			ops = append(ops, o.Operation)
		}
		for _, o := range ops {
			require.NoError(c.t, h.Add(o))
		}
	}
	c.t.Logf("%+v", h.Counts())
	return h
}

// round is how many lines, two a call, are written between two kills.
const round = 300

// play has two workers of each language work before servers, which and some of whom are killed. Every so many answers one is lost,
// and so many lines are written between two kills.
func (c *crowd) play(lose int64, lines int, servers []*server) {
	c.t.Helper()
	pgtest.Long(c.t)
	for _, s := range servers {
		f := newFront(c.t, s.url())
		f.loseEvery.Store(lose)
		c.setup.Bases = append(c.setup.Bases, f.URL)
	}
	for range 2 {
		for _, l := range languages {
			need(c.t, l.program)
			c.join(l)
		}
	}
	c.await(lines)
	for i := range 4 {
		servers[i%len(servers)].bounce()
		c.replace(languages[i%len(languages)])
		c.await(lines)
	}
}

func fight(t *testing.T, servers ...*server) {
	t.Helper()
	c := &crowd{t: t, setup: setup{Timeout: 10_000, TTL: 500}} // many calls of unknown outcome have too many orders to try
	c.play(37, round, servers)
	h := c.history()
	require.NoError(t, h.Check(time.Minute))
	assert.Positive(t, h.Counts().Granted)
	assert.Positive(t, h.Counts().Refused)
}

func TestClientsInOtherLanguagesHaveALegalHistoryWhileAServerOnSQLiteIsKilled(t *testing.T) {
	t.Parallel()
	fight(t, serve(t, ""))
}

func TestClientsInOtherLanguagesHaveALegalHistoryWhileServersOnPostgreSQLAreKilled(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	fight(t, serve(t, dsn), serve(t, dsn))
}

// The control.
func TestTheHistoryCatchesAClientThatIgnoresTheDeadline(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		var err error
		for range 5 { // on a slow machine the two meet less often
			c := &crowd{t: t, setup: setup{Timeout: 2000, TTL: 500, Control: "no deadline", Bases: []string{serve(t, "").url()}}}
			c.join(l)
			c.join(l)
			c.await(2 * round)
			if err = c.history().Check(time.Minute); err != nil {
				break
			}
		}
		require.ErrorIs(t, err, leasetest.ErrIllegal)
	})
}
