package clients_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
)

// A batch is what a client sends, and is answered.
type batch struct {
	Operations []map[string]json.RawMessage `json:"operations,omitempty"`
	Results    []json.RawMessage            `json:"results,omitempty"`
}

func decodeBatch(text []byte) (b batch) {
	if err := json.Unmarshal(text, &b); err != nil {
		panic(err)
	}
	return b
}

func (b batch) answer() wrong {
	text, err := json.Marshal(b)
	if err != nil {
		panic(err)
	}
	return wrong{http.StatusOK, "application/json", string(text)}
}

// locks returns the locks of all operations.
func (b batch) locks() (all []string) {
	for _, o := range b.Operations {
		for _, body := range o {
			var of struct{ Lock string }
			_ = json.Unmarshal(body, &of)
			all = append(all, of.Lock)
		}
	}
	return all
}

// errorsOf returns what became of each operation: "" or the name of an error.
func errorsOf(r reply) []string {
	all := []string{r.Error}[:0]
	for _, one := range r.Results {
		all = append(all, one.Error)
	}
	return all
}

// tokensOf returns the fencing tokens of all results. The tokens of a SQLite store rise over all its locks.
func tokensOf(r reply) (all []string) {
	for _, one := range r.Results {
		all = append(all, one.Token)
	}
	return all
}

func names(n int, format string) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf(format, i))
	}
	return all
}

func TestEachOperationOfABatchHasItsOwnResult(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s, f := serveBehindFront(t)
		other := l.client(t, s.url())
		require.Empty(t, other.do(command{Do: "acquire", As: "other", Name: "held"}).Error)
		w := l.client(t, f.URL)
		all := []string{"a", "held", "not\nvalid", "schön ✓", `"fencing_token":7`, "b/c"}
		r := w.do(command{Do: "acquire all", As: "w", Names: all})
		assert.Equal(t, []string{"", "Held", "Invalid", "", "", ""}, errorsOf(r), "in the order of the names")
		assert.Equal(t, "other", r.Results[1].Owner)
		for i, one := range r.Results {
			if one.Error == "" {
				assert.Equal(t, all[i], one.Name)
				assert.Equal(t, "w", direct(t, s, all[i]).OwnerID)
				assert.Positive(t, one.Remaining)
			}
		}
		assert.Equal(t, int64(1), f.requests.Load(), "in one request")

		mine := []string{"a", "schön ✓", "b/c"}
		stolen := other.do(command{Do: "adopt", As: "thief", Name: "schön ✓", Owner: "w", ID: r.Results[3].ID})
		require.Empty(t, stolen.Error)
		require.Empty(t, other.do(command{Do: "release", As: "thief"}).Error)
		require.Empty(t, other.do(command{Do: "acquire", As: "other", Name: "schön ✓"}).Error)
		assert.Equal(t, []string{"", "Stale", ""}, errorsOf(w.do(command{Do: "renew all", Names: mine})))
		assert.Equal(t, []string{"", "Stale", ""}, errorsOf(w.do(command{Do: "release all", Names: mine})))
		assert.Equal(t, int64(3), f.requests.Load())
		assert.Equal(t, []string{"", "Stale", ""}, errorsOf(w.do(command{Do: "release all", Names: mine})), "what the first release said")
		assert.Equal(t, int64(3), f.requests.Load(), "a lease is released once")
		assert.Equal(t, "FREE", direct(t, s, "a").State)
		assert.Equal(t, "other", direct(t, s, "schön ✓").OwnerID)
	})
}

func TestALostAnswerToABatchCostsNoSecondLease(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s, f := serveBehindFront(t)
		w := l.client(t, f.URL)
		for i, do := range []string{"acquire all", "renew all", "release all"} {
			f.loseNext("batch")
			r := w.do(command{Do: do, As: "w", Names: names(3, "x%d")})
			require.Equal(t, []string{"", "", ""}, errorsOf(r), do)
			assert.ElementsMatch(t, []string{"1", "2", "3"}, tokensOf(r), "%s: those of the first sending", do)
			assert.Equal(t, int64(2*i+2), f.batches.Load(), "the same batch again")
			assert.Equal(t, f.batches.Load(), f.requests.Load(), "and nothing else")
		}
		assert.Equal(t, "FREE", direct(t, s, "x2").State)

		w = l.start(t, setup{Bases: []string{f.URL}, Timeout: 10_000, TTL: 600_000, Control: "another key"})
		f.loseNext("batch")
		assert.Equal(t, []string{"Held", "Held", "Held"}, errorsOf(w.do(command{Do: "acquire all", As: "w", Names: names(3, "y%d")})), "the control")
	})
}

func TestABatchWhoseAnswersAreAllLostIsPlainRequests(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		_, f := serveBehindFront(t)
		w := l.client(t, f.URL)
		f.onBatch(func(body []byte, ask func([]byte) []byte) wrong {
			ask(body)
			panic(http.ErrAbortHandler)
		})
		r := w.do(command{Do: "acquire all", As: "w", Names: names(3, "x%d")})
		require.Equal(t, []string{"", "", ""}, errorsOf(r))
		assert.ElementsMatch(t, []string{"1", "2", "3"}, tokensOf(r), "those of the first sending")
		assert.Equal(t, int64(2), f.batches.Load())
		assert.Equal(t, int64(5), f.requests.Load())
		f.loseEvery.Store(1)
		assert.Equal(t, []string{"OutcomeUnknown", "OutcomeUnknown", "OutcomeUnknown"}, errorsOf(w.do(command{Do: "renew all", Names: names(3, "x%d")})), "the control")
	})
}

func TestARefusalOfASecondBatchSaysNothingOfTheFirst(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s, f := serveBehindFront(t)
		f.narrows.Store(true)
		w := l.client(t, f.URL)
		f.loseNext("batch")
		assert.Equal(t, []string{"OutcomeUnknown", "OutcomeUnknown"}, errorsOf(w.do(command{Do: "acquire all", As: "w", Names: names(2, "x%d")})))
		assert.Equal(t, "HELD", direct(t, s, "x1").State)
		assert.Equal(t, []string{"Invalid", "Invalid"}, errorsOf(w.do(command{Do: "acquire all", As: "w", Names: names(2, "y%d")})), "the control: nothing was sent before")

		f.narrow.Store(false)
		f.narrows.Store(false)
		var later atomic.Bool
		f.onBatch(func(body []byte, ask func([]byte) []byte) wrong { // the second sending is refused item by item
			if !later.Swap(true) {
				ask(body)
				panic(http.ErrAbortHandler)
			}
			one := json.RawMessage(`{"status":429,"problem":` + problem(http.StatusTooManyRequests, "rate-limited").text + `}`)
			return batch{Results: []json.RawMessage{one, one}}.answer()
		})
		r := w.do(command{Do: "acquire all", As: "w", Names: names(2, "z%d")})
		assert.Equal(t, []string{"", ""}, errorsOf(r), "sent alone, they get the leases of the first sending")
		assert.Equal(t, []string{"Busy", "Busy"}, errorsOf(w.do(command{Do: "acquire all", As: "w", Names: names(2, "z%d")})), "the control: nothing was sent before")

		f.onBatch(func(body []byte, ask func([]byte) []byte) wrong { // a page says nothing of the batch, and the plain requests are refused
			ask(body)
			f.narrow.Store(true)
			return wrong{http.StatusNotFound, "text/html", "<html>"}
		})
		assert.Equal(t, []string{"OutcomeUnknown", "OutcomeUnknown"}, errorsOf(w.do(command{Do: "acquire all", As: "w", Names: names(2, "v%d")})))
		assert.Equal(t, "HELD", direct(t, s, "v1").State)
	})
}

func TestWhereNobodyListensNoOperationWasDone(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s := serve(t, "")
		w := l.start(t, setup{Bases: []string{s.url()}, Timeout: 10_000, TTL: 60_000})
		s.program.Signal(syscall.SIGKILL)
		s.program.Wait()
		assert.Equal(t, []string{"Unavailable", "Unavailable"}, errorsOf(w.do(command{Do: "acquire all", As: "a", Names: names(2, "x%d")})))
	})
}

func TestManyOperationsNeedFewRequestsOfLimitedSize(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s := serve(t, "", "--store-timeout", "1m") // a batch that takes longer is answered in part, and the rest is sent alone
		f := newFront(t, s.url())
		var mu sync.Mutex
		var operations, most, greatest int
		f.onBatch(func(body []byte, _ func([]byte) []byte) wrong {
			mu.Lock()
			defer mu.Unlock()
			n := len(decodeBatch(body).Operations)
			operations, most, greatest = operations+n, max(most, n), max(greatest, len(body))
			return wrong{}
		})
		w := l.start(t, setup{Bases: []string{f.URL}, Timeout: 60_000, TTL: 600_000})
		all := append(names(1001, "short-%d"), names(600, strings.Repeat("ä", 200)+"%d")...)
		for i, do := range []string{"acquire all", "renew all", "release all"} {
			r := w.do(command{Do: do, As: "w", Names: all})
			require.Len(t, r.Results, len(all))
			for at, one := range r.Results {
				require.Empty(t, one.Error, do)
				require.Equal(t, all[at], one.Name, do)
			}
			mu.Lock()
			assert.Equal(t, len(all)*(i+1), operations, do)
			mu.Unlock()
		}
		assert.Equal(t, f.batches.Load(), f.requests.Load(), "no plain requests")
		mu.Lock()
		defer mu.Unlock()
		assert.LessOrEqual(t, f.batches.Load(), int64(3*7))
		assert.Equal(t, 1000, most)
		assert.LessOrEqual(t, greatest, 192<<10)
		assert.Greater(t, greatest, 128<<10, "the control: their size is limited")
		assert.Equal(t, "FREE", direct(t, s, "short-999").State)
	})
}

func TestALockIsInABatchOnce(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		_, f := serveBehindFront(t)
		f.onBatch(func(body []byte, _ func([]byte) []byte) wrong {
			locks := decodeBatch(body).locks()
			assert.Equal(t, []string{"x", "y"}, locks)
			return wrong{}
		})
		w := l.client(t, f.URL)
		assert.Equal(t, []string{"", "Held", "", "Held"}, errorsOf(w.do(command{Do: "acquire all", As: "w", Names: []string{"x", "x", "y", "x"}})), "one after the other")
		assert.Equal(t, int64(1), f.batches.Load())
		f.onBatch(func([]byte, func([]byte) []byte) wrong { return wrong{} })
		assert.Equal(t, []string{"", "", ""}, errorsOf(w.do(command{Do: "release all", Names: []string{"x", "x", "y"}})))
	})
}

func TestManySharesAreAcquiredAlone(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s, f := serveBehindFront(t)
		w := l.client(t, f.URL)
		r := w.do(command{Do: "acquire all", As: "w", Names: []string{"x", "x", "y"}, Slots: 2})
		require.Equal(t, []string{"", "", ""}, errorsOf(r))
		assert.Equal(t, []int{1, 2, 1}, []int{r.Results[0].Slot, r.Results[1].Slot, r.Results[2].Slot})
		assert.Equal(t, "y::slot::0001", r.Results[2].Name)
		assert.Equal(t, int64(3), f.requests.Load())
		assert.Zero(t, f.batches.Load(), "a batch does not wait for a share")
		for i, do := range []string{"renew all", "release all"} {
			require.Equal(t, []string{"", ""}, errorsOf(w.do(command{Do: do, Names: []string{"x", "y"}})), do)
			assert.Equal(t, int64(i+1), f.batches.Load(), do)
			assert.Equal(t, int64(i+4), f.requests.Load(), do)
		}
		assert.Equal(t, "FREE", direct(t, s, "y::slot::0001").State)
	})
}

func TestAServerWithoutBatchesGetsPlainRequests(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]wrong{
		"an earlier version":         problem(http.StatusNotFound, "no-such-route"),
		"a token of some routes":     problem(http.StatusForbidden, "forbidden"),
		"a small limit of bodies":    problem(http.StatusRequestEntityTooLarge, "body-too-large"),
		"a proxy of some routes":     {http.StatusNotFound, "text/html", "<html>"},
		"a proxy with a page of 200": {http.StatusOK, "text/html", "<html>"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inEach(t, func(t *testing.T, l language) {
				t.Helper()
				s, f := serveBehindFront(t)
				f.onBatch(func([]byte, func([]byte) []byte) wrong { return refusal })
				w := l.client(t, f.URL)
				for _, do := range []string{"acquire all", "renew all", "release all"} {
					r := w.do(command{Do: do, As: "w", Names: names(20, "x%d")})
					require.Equal(t, make([]string, 20), errorsOf(r), do)
				}
				assert.Equal(t, int64(1), f.batches.Load(), "it is asked for no other batch")
				assert.Equal(t, int64(61), f.requests.Load())
				assert.Equal(t, "FREE", direct(t, s, "x19").State)
			})
		})
	}
}

func TestABatchThatIsNotAllowedIsDeniedForEach(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		_, f := serveBehindFront(t)
		f.onBatch(func([]byte, func([]byte) []byte) wrong { return problem(http.StatusUnauthorized, "unauthorized") })
		w := l.client(t, f.URL)
		assert.Equal(t, []string{"Denied", "Denied"}, errorsOf(w.do(command{Do: "acquire all", As: "w", Names: names(2, "x%d")})))
		assert.Equal(t, int64(1), f.requests.Load())
		f.onBatch(func([]byte, func([]byte) []byte) wrong { return problem(http.StatusConflict, "lock-held") })
		assert.Equal(t, []string{"", ""}, errorsOf(w.do(command{Do: "acquire all", As: "w", Names: names(2, "x%d")})), "a batch as a whole is not held")
	})
}

func TestAnOperationThatFindsTheStoreBusyIsSentAlone(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s, f := serveBehindFront(t)
		f.onBatch(func(body []byte, ask func([]byte) []byte) wrong { // the second and the third of four
			b := decodeBatch(body)
			b.Operations = append(b.Operations[:1:1], b.Operations[3])
			onward, _ := json.Marshal(b)
			results := decodeBatch(ask(onward)).Results
			busy := json.RawMessage(`{"status":503,"problem":` + problem(http.StatusServiceUnavailable, "lock-busy-retry").text + `}`)
			return batch{Results: []json.RawMessage{results[0], busy, busy, results[1]}}.answer()
		})
		w := l.client(t, f.URL)
		for i, do := range []string{"acquire all", "renew all", "release all"} {
			r := w.do(command{Do: do, As: "w", Names: names(4, "x%d")})
			require.Equal(t, make([]string, 4), errorsOf(r), do)
			for at, one := range r.Results {
				assert.Equal(t, names(4, "x%d")[at], one.Name, do)
			}
			assert.Equal(t, int64(i+1), f.batches.Load())
			assert.Equal(t, int64(3*i+3), f.requests.Load(), "two of them again, each alone")
		}
		assert.Equal(t, "FREE", direct(t, s, "x1").State)
	})
}

// The server refuses an acquire in a batch that would overtake another client. Sent alone, it does not wait either.
func TestAnAcquireOfALockThatOthersWaitForIsSentAlone(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s, f := serveBehindFront(t)
		other := l.client(t, s.url())
		require.Empty(t, other.do(command{Do: "acquire", As: "other", Name: "x0"}).Error)
		waiter := l.client(t, s.url())
		waiter.send(command{Do: "acquire", As: "waiter", Name: "x0", Wait: 60_000})
		var alone atomic.Bool
		f.onBatch(func(body []byte, ask func([]byte) []byte) wrong {
			b := decodeBatch(ask(body))
			alone.Store(strings.Contains(string(b.Results[0]), "lock-busy-retry"))
			return b.answer()
		})
		w := l.client(t, f.URL)
		await.Until(t, await.Soon, func() bool {
			before := f.requests.Load()
			r := w.do(command{Do: "acquire all", As: "w", Names: names(2, "x%d")})
			assert.Equal(t, "Held", r.Results[0].Error)
			assert.Equal(t, "other", r.Results[0].Owner)
			if alone.Load() {
				assert.Equal(t, before+2, f.requests.Load())
			}
			return alone.Load()
		}, "the other client waits")
		require.Empty(t, other.do(command{Do: "release", As: "other"}).Error)
		require.Empty(t, waiter.answer().Error)
		assert.Equal(t, "waiter", direct(t, s, "x0").OwnerID)
	})
}

func TestResultsOfOtherOperationsAreNotTaken(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		_, f := serveBehindFront(t)
		var granted int
		mixes := map[string]func(all []json.RawMessage) []json.RawMessage{
			"swapped": func(all []json.RawMessage) []json.RawMessage { return []json.RawMessage{all[1], all[0]} },
			"cut":     func(all []json.RawMessage) []json.RawMessage { return all[:1] },
			"longer":  func(all []json.RawMessage) []json.RawMessage { return append(all, all[0]) },
			"empty": func([]json.RawMessage) []json.RawMessage {
				return []json.RawMessage{[]byte(`{"status":200}`), []byte("7")}
			},
		}
		for mix, how := range mixes {
			f.onBatch(func(body []byte, ask func([]byte) []byte) wrong {
				return batch{Results: how(decodeBatch(ask(body)).Results)}.answer()
			})
			w := l.client(t, f.URL)
			all := names(2, mix+"%d")
			r := w.do(command{Do: "acquire all", As: "w", Names: all})
			require.Equal(t, []string{"", ""}, errorsOf(r), mix)
			for i, one := range r.Results {
				assert.Equal(t, all[i], one.Name, mix)
			}
			granted += 2
			assert.ElementsMatch(t, []string{strconv.Itoa(granted - 1), strconv.Itoa(granted)}, tokensOf(r), "%s: no second lease", mix)
			assert.Equal(t, int64(granted), f.batches.Load(), "%s: the batch is sent again", mix)
			assert.Equal(t, int64(2*granted), f.requests.Load(), "%s: and then each operation alone", mix)
		}
	})
}

func TestAnOperationWithoutAnAnswerCostsNoOtherItsLease(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		_, f := serveBehindFront(t)
		w := l.start(t, setup{Bases: []string{f.URL}, Timeout: 60_000, TTL: 20_000})
		all := append(names(20, "x%d"), "stuck")
		require.Equal(t, make([]string, 21), errorsOf(w.do(command{Do: "acquire all", As: "w", Names: all})))
		stuck := "stuck"
		f.stuck.Store(&stuck)
		r := w.do(command{Do: "renew all", Names: all})
		assert.Equal(t, append(make([]string, 20), "OutcomeUnknown"), errorsOf(r))
		r = w.do(command{Do: "tell all", Names: all})
		for _, one := range r.Results[:20] {
			assert.Positive(t, one.Remaining, one.Name)
		}
		assert.Zero(t, r.Results[20].Remaining, "the control: the time of a lease was over")
	})
}

func TestHeartbeatsShareRequests(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		_, f := serveBehindFront(t)
		var renewals atomic.Int64
		f.onBatch(func(body []byte, _ func([]byte) []byte) wrong {
			renewals.Add(int64(len(decodeBatch(body).Operations)))
			return wrong{}
		})
		w := l.start(t, setup{Bases: []string{f.URL}, Timeout: 60_000, TTL: 60_000})
		const n = 20
		require.Equal(t, make([]string, n), errorsOf(w.do(command{Do: "acquire all", As: "w", Names: names(n, "x%d")})))
		before := f.requests.Load()
		renewals.Store(0)
		w.do(command{Do: "heartbeat all", Names: names(n, "x%d"), Wait: 500})
		await.Until(t, await.Soon, func() bool { return renewals.Load() >= 5*n }, "no renewals in batches")
		assert.Less(t, 3*(f.requests.Load()-before), renewals.Load(), "requests, without batches as many")
		assert.Equal(t, make([]string, n), errorsOf(w.do(command{Do: "renew all", Names: names(n, "x%d")})), "they are held")
	})
}

func TestAHeartbeatWithoutAnAnswerCostsNoOtherItsLease(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		_, f := serveBehindFront(t)
		w := l.start(t, setup{Bases: []string{f.URL}, Timeout: 60_000, TTL: 20_000})
		all := append(names(5, "x%d"), "stuck")
		require.Equal(t, make([]string, 6), errorsOf(w.do(command{Do: "acquire all", As: "w", Names: all})))
		stuck := "stuck"
		f.stuck.Store(&stuck)
		w.do(command{Do: "heartbeat all", Names: all, Wait: 500})
		assert.Zero(t, w.do(command{Do: "lost", As: "stuck"}).Remaining)
		for _, one := range w.do(command{Do: "tell all", Names: all[:5]}).Results {
			assert.Positive(t, one.Remaining, one.Name)
		}
	})
}
