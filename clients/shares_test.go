package clients_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestAShareIsALeaseOfItsSlot(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s, f := serveBehindFront(t)
		w := l.client(t, f.URL)
		a := w.do(command{Do: "acquire", As: "a", Name: "gpu", Slots: 2})
		b := w.do(command{Do: "acquire", As: "b", Name: "gpu", Slots: 2})
		require.Empty(t, a.Error+b.Error)
		assert.Equal(t, []string{"gpu", "gpu::slot::0001", "gpu", "gpu::slot::0002"}, []string{a.ShareOf, a.Name, b.ShareOf, b.Name})
		assert.Equal(t, []int{1, 2}, []int{a.Slot, b.Slot})
		assert.Greater(t, number(t, b.Fence), number(t, a.Fence))
		assert.Equal(t, "Held", w.do(command{Do: "acquire", As: "c", Name: "gpu", Slots: 2}).Error)
		assert.Equal(t, "Held", w.do(command{Do: "acquire", As: "c", Name: "gpu", Mode: "exclusive", Wait: 50}).Error)
		require.Empty(t, w.do(command{Do: "acquire", As: "d", Name: "gpu"}).Error, "without slots it is another lock")
		require.Empty(t, w.do(command{Do: "renew", As: "b"}).Error)
		assert.Equal(t, "b", direct(t, s, "gpu::slot::0002").OwnerID)
		f.loseNext("release")
		require.Empty(t, w.do(command{Do: "release", As: "b"}).Error)
		assert.Equal(t, "FREE", direct(t, s, "gpu::slot::0002").State)
		assert.Equal(t, "HELD", direct(t, s, "gpu::slot::0001").State)
		f.loseNext("acquire")
		c := w.do(command{Do: "acquire", As: "c", Name: "gpu", Slots: 2, Wait: 20_000})
		require.Empty(t, c.Error, "the second sending gets the slot of the first")
		assert.Equal(t, "gpu::slot::0002", c.Name)
		assert.Greater(t, number(t, c.Fence), number(t, b.Fence))
		for _, wrong := range []command{{Slots: 1001}, {Slots: -1}, {Mode: "other"}, {Slots: 2, Mode: "exclusive"}, {Name: "gpu::slot::0001", Slots: 2}} {
			wrong.Do, wrong.As = "acquire", "e"
			if wrong.Name == "" {
				wrong.Name = "gpu"
			}
			assert.Equal(t, "Invalid", w.do(wrong).Error, "%+v", wrong)
		}
	})
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	require.NoError(t, err)
	return n
}

func TestReadersShareALockAndAWriterHasItAlone(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s := serve(t, "")
		w := l.client(t, s.url())
		for _, reader := range []string{"a", "b"} {
			require.Empty(t, w.do(command{Do: "acquire", As: reader, Name: "catalogue", Mode: "shared"}).Error)
		}
		other := l.client(t, s.url())
		other.send(command{Do: "acquire", As: "writer", Name: "catalogue", Mode: "exclusive", Wait: 30_000})
		await.Until(t, await.Soon, func() bool {
			held := w.do(command{Do: "acquire", As: "c", Name: "catalogue", Mode: "shared"}).Error == "Held"
			if !held {
				w.do(command{Do: "release", As: "c"})
			}
			return held
		}, "the writer waits before later readers")
		for _, reader := range []string{"a", "b"} {
			require.Empty(t, w.do(command{Do: "release", As: reader}).Error)
		}
		writer := other.answer()
		require.Empty(t, writer.Error)
		assert.Equal(t, "catalogue::slot::0000", writer.Name)
		assert.Zero(t, writer.Slot)
		assert.Equal(t, "Held", w.do(command{Do: "acquire", As: "d", Name: "catalogue", Mode: "shared"}).Error)
		assert.Equal(t, "Held", w.do(command{Do: "acquire", As: "d", Name: "catalogue", Mode: "exclusive"}).Error)
		require.Empty(t, other.do(command{Do: "renew", As: "writer"}).Error)
		require.Empty(t, other.do(command{Do: "release", As: "writer"}).Error)
		require.Empty(t, w.do(command{Do: "acquire", As: "d", Name: "catalogue", Mode: "shared", Wait: 20_000}).Error)
	})
}

// It has an idempotency key, so that it can come back.
func TestAWriterThatGaveUpKeepsReadersOutForAWhile(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s := serve(t, "")
		w := l.client(t, s.url())
		require.Empty(t, w.do(command{Do: "acquire", As: "a", Name: "catalogue", Mode: "shared"}).Error)
		assert.Equal(t, "Held", w.do(command{Do: "acquire", As: "writer", Name: "catalogue", Mode: "exclusive"}).Error)
		require.Empty(t, w.do(command{Do: "acquire", As: "b", Name: "catalogue", Mode: "shared"}).Error, "a writer that does not wait keeps nobody out")
		await.Until(t, await.Soon, func() bool {
			assert.Equal(t, "Held", w.do(command{Do: "acquire", As: "writer", Name: "catalogue", Mode: "exclusive", Wait: 50}).Error)
			return w.do(command{Do: "acquire", As: "c", Name: "catalogue", Mode: "shared"}).Owner == "writer"
		}, "a reader is kept out")
		require.Empty(t, w.do(command{Do: "acquire", As: "c", Name: "catalogue", Mode: "shared", Wait: 30_000}).Error)
	})
}

func TestAHeartbeatKeepsAShareAndTellsOfItsLoss(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s, f := serveBehindFront(t)
		w := l.start(t, setup{Bases: []string{f.URL}, Timeout: 60_000, TTL: 12_000, Margin: 6000})
		require.Empty(t, w.do(command{Do: "acquire", As: "a", Name: "gpu", Slots: 1}).Error)
		w.do(command{Do: "heartbeat", As: "a", Wait: 200})
		asked := f.requests.Load()
		await.Until(t, await.Soon, func() bool { return f.requests.Load() >= asked+3 }, "no renewals")
		require.Empty(t, w.do(command{Do: "check", As: "a"}).Error)
		w.send(command{Do: "lost", As: "a"})
		f.silent.Store(true)
		assert.Zero(t, w.answer().Remaining)
		assert.Equal(t, "HELD", direct(t, s, "gpu::slot::0001").State, "the loss is told before")
	})
}

func TestTheAnswerToAnotherRequestIsNoShare(t *testing.T) {
	t.Parallel()
	const share = `"share_of":"gpu","fence":9223372036854775807`
	for name, test := range map[string]struct {
		answer, mode, fails string
	}{
		"the control":               {`"lock":"gpu::slot::0003","slot":3,` + share, "shared", ""},
		"the control, exclusive":    {`"lock":"gpu::slot::0000",` + share, "exclusive", ""},
		"an ordinary lease":         {`"lock":"gpu"`, "shared", "OutcomeUnknown"},
		"the whole lock":            {`"lock":"gpu::slot::0000",` + share, "shared", "OutcomeUnknown"},
		"a slot":                    {`"lock":"gpu::slot::0003","slot":3,` + share, "exclusive", "OutcomeUnknown"},
		"another slot's name":       {`"lock":"gpu::slot::0002","slot":3,` + share, "shared", "OutcomeUnknown"},
		"of another lock":           {`"lock":"tpu::slot::0003","slot":3,"share_of":"tpu","fence":1`, "shared", "OutcomeUnknown"},
		"a share that is none":      {`"lock":"gpu::slot::0003","slot":3,` + share, "", "OutcomeUnknown"},
		"a share without its fence": {`"lock":"gpu::slot::0003","slot":3,"share_of":"gpu"`, "shared", "OutcomeUnknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{`+test.answer+`,"owner_id":"a","lease_id":"i","fencing_token":1,"ttl_remaining_ms":60000}`)
			}))
			t.Cleanup(s.Close)
			inEach(t, func(t *testing.T, l language) {
				t.Helper()
				w := l.start(t, setup{Bases: []string{s.URL}, Timeout: 10_000, TTL: 60_000})
				r := w.do(command{Do: "acquire", As: "a", Name: "gpu", Mode: test.mode})
				assert.Equal(t, test.fails, r.Error)
				if test.fails == "" {
					assert.Equal(t, "9223372036854775807", r.Fence)
				}
			})
		})
	}
}

// A hold is a line of a worker that has shares.
type hold struct {
	Owner string `json:"owner"`
	ID    string `json:"id"`
	Slot  int    `json:"slot"`
	Fence uint64 `json:"fence"`
	Asked int64  `json:"asked_ns"`
	Got   int64  `json:"got_ns"`
	End   int64  `json:"end_ns"`
}

// holds ends the workers and returns what they could rely on.
func (c *crowd) holds() []judge.Hold {
	c.t.Helper()
	for _, w := range c.workers {
		c.written = append(c.written, w.kill())
	}
	var all []judge.Hold
	for _, lines := range c.written {
		index := make(map[string]int)
		for _, line := range lines {
			var h hold
			require.NoError(c.t, json.Unmarshal([]byte(line), &h), line)
			j := judge.Hold{Key: "shared", Who: h.Owner, Token: h.Fence, Exclusive: h.Slot == 0, Begin: judge.Moment{Earliest: h.Asked, Latest: h.Got}, End: judge.At(h.End)}
			if i, known := index[h.ID]; known { // it was released
				all[i] = j
				continue
			}
			index[h.ID] = len(all)
			all = append(all, j)
		}
	}
	c.t.Log(len(all), "shares")
	return all
}

// turns is how many lines, two a share, are written between two kills.
const turns = 100

// compete has workers of each language compete for shares of one lock, while servers and workers are killed.
func compete(t *testing.T, asked share, servers ...*server) []judge.Hold {
	t.Helper()
	c := &crowd{t: t, setup: setup{Timeout: 2000, TTL: 400, Share: &asked}}
	c.play(29, turns, servers)
	all := c.holds()
	assert.Greater(t, len(all), turns)
	return all
}

func TestSlotsAreNeverExceededWhileServersAndHoldersAreKilled(t *testing.T) {
	t.Parallel()
	holds := compete(t, share{Slots: 3}, serve(t, ""))
	require.NoError(t, judge.Holds(holds, 3))
	assert.Error(t, judge.Holds(holds, 2), "the control: all three are used")
}

func TestAWriterIsNeverBesideAReaderWhileServersAndHoldersAreKilled(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	holds := compete(t, share{}, serve(t, dsn), serve(t, dsn))
	require.NoError(t, judge.Holds(holds, 1000))
	assert.Error(t, judge.Holds(holds, 1), "the control: readers are at work at once")
}

// The control.
func TestTheJudgeCatchesClientsThatReadWhileTheyWrite(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	c := &crowd{t: t, setup: setup{Timeout: 2000, TTL: 400, Control: "no deadline", Share: &share{}, Bases: []string{serve(t, "").url()}}}
	for _, l := range languages {
		need(t, l.program)
		c.join(l)
	}
	c.await(3 * turns)
	require.Error(t, judge.Holds(c.holds(), 1000))
}
