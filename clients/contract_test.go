package clients_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
)

// direct asks a server for a lock without any client.
func direct(t *testing.T, s *server, name string) clitest.LeaseAnswer {
	t.Helper()
	stdout, stderr, _ := clitest.Run(t, nil, "lease", "get", name, "-o", "json", "--server", s.url())
	require.NotEmpty(t, stdout, stderr)
	return clitest.Decode[clitest.LeaseAnswer](t, stdout)
}

func TestErrorsHaveTypes(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s := serve(t, "")
		w := l.start(t, setup{Bases: []string{s.url()}, Timeout: 10_000, TTL: 2000})
		long := l.client(t, s.url())
		mine := long.do(command{Do: "acquire", As: "a", Name: "x"})
		require.Empty(t, mine.Error)
		held := w.do(command{Do: "acquire", As: "b", Name: "x", Wait: 50})
		assert.Equal(t, "Held", held.Error)
		assert.Equal(t, "a", held.Owner)
		short := w.do(command{Do: "acquire", As: "c", Name: "y"})
		require.Empty(t, short.Error)
		await.Until(t, await.Soon, func() bool { return direct(t, s, "y").State != "HELD" }, "y expires") // and may be swept
		assert.Equal(t, "Lost", w.do(command{Do: "check", As: "c"}).Error)
		assert.Equal(t, "Expired", w.do(command{Do: "renew", As: "c"}).Error)
		require.Empty(t, long.do(command{Do: "acquire", As: "d", Name: "y"}).Error)
		assert.Equal(t, "Stale", w.do(command{Do: "renew", As: "c"}).Error)
		assert.Equal(t, "Stale", w.do(command{Do: "release", As: "c"}).Error)
		assert.Equal(t, "Stale", w.do(command{Do: "release", As: "c"}).Error, "what the first release said")
		assert.Equal(t, "Invalid", w.do(command{Do: "acquire", As: "e", Name: "a\nb"}).Error)
		for _, name := range []string{"a/b?c#d%2F", "schön ✓", `"fencing_token":7`} {
			assert.Empty(t, w.do(command{Do: "acquire", As: "f", Name: name}).Error, name)
		}
		none := serve(t, "")
		elsewhere := newFront(t, s.url())
		move := l.client(t, elsewhere.URL)
		require.Empty(t, move.do(command{Do: "acquire", As: "g", Name: "z"}).Error)
		elsewhere.target = none.url()
		assert.Equal(t, "NotFound", move.do(command{Do: "renew", As: "g"}).Error)
	})
}

func TestWhereNobodyListensNothingWasDone(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s := serve(t, "")
		at := s.url()
		s.program.Signal(syscall.SIGKILL)
		s.program.Wait()
		w := l.start(t, setup{Bases: []string{at}, Timeout: 10_000, TTL: 60_000})
		for _, wait := range []int{0, 300} {
			assert.Equal(t, "Unavailable", w.do(command{Do: "acquire", As: "a", Name: "x", Wait: wait}).Error)
		}
	})
}

func TestALostAnswerCostsNoSecondLease(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s, f := serveBehindFront(t)
		w := l.client(t, f.URL)
		f.loseNext("acquire")
		first := w.do(command{Do: "acquire", As: "a", Name: "x"})
		require.Empty(t, first.Error)
		assert.Equal(t, "1", first.Token)
		f.loseNext("renew")
		assert.Empty(t, w.do(command{Do: "renew", As: "a"}).Error)
		f.loseNext("release")
		assert.Empty(t, w.do(command{Do: "release", As: "a"}).Error)
		sent := f.releases.Load()
		assert.Equal(t, int64(2), sent)
		assert.Empty(t, w.do(command{Do: "release", As: "a"}).Error)
		assert.Equal(t, sent, f.releases.Load(), "a lease is released once")
		assert.Equal(t, "FREE", direct(t, s, "x").State)
		f.mixedUp.Store(true)
		assert.Equal(t, "OutcomeUnknown", w.do(command{Do: "acquire", As: "b", Name: "x"}).Error, "the answer to another request")

		f.mixedUp.Store(false)
		w = l.start(t, setup{Bases: []string{f.URL}, Timeout: 10_000, TTL: 600_000, Control: "another key"})
		f.loseNext("acquire")
		control := w.do(command{Do: "acquire", As: "c", Name: "y"})
		assert.Equal(t, "Held", control.Error, "the control: who sends another key is refused by its own lease")
		assert.Equal(t, "c", control.Owner)
	})
}

func TestARefusalOfASecondSendingSaysNothingOfTheFirst(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s := serve(t, "")
		f, next := newFront(t, s.url()), newFront(t, s.url())
		next.narrow.Store(true)
		w := l.start(t, setup{Bases: []string{f.URL, next.URL}, Timeout: 10_000, TTL: 600_000})
		f.loseNext("acquire")
		assert.Equal(t, "1", w.do(command{Do: "acquire", As: "a", Name: "x"}).Token, "the first server takes it still")

		f.narrows.Store(true)
		w = l.client(t, f.URL)
		for name, wait := range map[string]int{"y": 0, "z": 20_000} { // in the latter another request follows, which is refused at once
			f.loseNext("acquire")
			assert.Equal(t, "OutcomeUnknown", w.do(command{Do: "acquire", As: name, Name: name, Wait: wait}).Error)
			assert.Equal(t, "HELD", direct(t, s, name).State)
			assert.Equal(t, "Invalid", w.do(command{Do: "acquire", As: "c", Name: "control"}).Error, "the control: nothing was sent before")
			f.narrow.Store(false)
		}
	})
}

func TestTheNextServerIsAskedWhenOneDies(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s := serve(t, "")
		one, two := newFront(t, s.url()), newFront(t, s.url())
		w := l.start(t, setup{Bases: []string{one.URL, two.URL}, Timeout: 10_000, TTL: 600_000})
		a := w.do(command{Do: "acquire", As: "a", Name: "x"})
		require.Empty(t, a.Error)
		one.CloseClientConnections()
		one.Close()
		assert.Empty(t, w.do(command{Do: "renew", As: "a"}).Error)
		asked := two.requests.Load()
		assert.Equal(t, int64(1), asked)
		assert.Empty(t, w.do(command{Do: "acquire", As: "b", Name: "y", Wait: 1000}).Error)
		assert.Equal(t, asked+1, two.requests.Load(), "it stays with the one that answers")
		assert.Empty(t, w.do(command{Do: "release", As: "a"}).Error)
	})
}

func TestAHeartbeatKeepsALeaseAndTellsOfItsLossBeforeTheServerGivesItAway(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s, f := serveBehindFront(t)
		w := l.start(t, setup{Bases: []string{f.URL}, Timeout: 60_000, TTL: 12_000, Margin: 6000})
		first := w.do(command{Do: "acquire", As: "a", Name: "x"})
		require.Empty(t, first.Error)
		w.do(command{Do: "heartbeat", As: "a", Wait: 200})
		asked := f.requests.Load()
		await.Until(t, await.Soon, func() bool { return f.requests.Load() >= asked+3 }, "no renewals")
		now := w.do(command{Do: "check", As: "a"})
		require.Empty(t, now.Error, "it is renewed")
		assert.Equal(t, first.Token, now.Token)
		w.send(command{Do: "lost", As: "a"})
		f.silent.Store(true)
		lost := w.answer()
		record := direct(t, s, "x")
		assert.Equal(t, "HELD", record.State, "the loss is told before")
		assert.Zero(t, lost.Remaining)
		assert.Equal(t, "Lost", w.do(command{Do: "check", As: "a"}).Error)
	})
}

func TestTheTimeOfALeaseCountsFromBeforeTheRequestWasSent(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s := serve(t, "")
		mine := l.client(t, s.url()).do(command{Do: "acquire", As: "a", Name: "mine"})
		require.Empty(t, mine.Error)
		for _, asks := range []command{
			{Do: "acquire", As: "a", Name: "x"},
			{Do: "acquire all", As: "a", Names: []string{"y", "z"}},
			{Do: "acquire", As: "a", Name: "gpu", Slots: 3},
			{Do: "adopt", As: "a", Name: "mine", Owner: "a", ID: mine.ID},
		} {
			came, answered := make(chan struct{}, 1), make(chan struct{})
			slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				onward, err := http.NewRequestWithContext(r.Context(), r.Method, s.url()+r.URL.RequestURI(), r.Body)
				if err != nil {
					panic(err)
				}
				onward.Header = r.Header.Clone()
				answer, err := http.DefaultTransport.RoundTrip(onward)
				if err != nil {
					panic(http.ErrAbortHandler)
				}
				defer func() { _ = answer.Body.Close() }()
				came <- struct{}{}
				<-answered
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.Copy(w, answer.Body)
			}))
			t.Cleanup(slow.Close)
			w := l.start(t, setup{Bases: []string{slow.URL}, Timeout: 60_000, TTL: 600_000})
			w.send(asks)
			await.Receive(t, await.Patience, came, "no answer of the server")
			granted := time.Now()
			await.Until(t, await.Soon, func() bool { return time.Since(granted) > 500*time.Millisecond }, "time goes on")
			delay := time.Since(granted)
			close(answered)
			r := w.answer()
			require.Empty(t, r.Error)
			all := []reply{r}
			if r.Results != nil {
				all = r.Results
			}
			for _, one := range all {
				assert.Positive(t, one.Remaining, one.Error)
				assert.LessOrEqual(t, one.Remaining, 540_000-int(delay.Milliseconds()), "%s: a tenth is kept free, and the answer's way counts", asks.Do)
			}
		}
	})
}

func TestTokensOfAllSizesAreKept(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		const greatest = "9223372036854775807"
		renewed := make(chan json.Number, 1)
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var body struct {
				Token json.Number `json:"fencing_token"`
			}
			_ = json.NewDecoder(r.Body).Decode(&body)
			if body.Token != "" {
				renewed <- body.Token
			}
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"lock":"x","owner_id":"a","lease_id":"i","fencing_token":`+greatest+`,"ttl_remaining_ms":60000}`)
		}))
		t.Cleanup(s.Close)
		w := l.start(t, setup{Bases: []string{s.URL}, Timeout: 10_000, TTL: 60_000})
		assert.Equal(t, greatest, w.do(command{Do: "acquire", As: "a", Name: "x"}).Token)
		require.Empty(t, w.do(command{Do: "renew", As: "a"}).Error)
		assert.Equal(t, json.Number(greatest), <-renewed)
	})
}

func TestATokenIsSentToWhomItIsFor(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "tokens")
		require.NoError(t, os.WriteFile(file, []byte("0123456789abcdef\n"), 0o600))
		s := serve(t, "", "--auth-token-file", file)
		acquire := command{Do: "acquire", As: "a", Name: "x"}
		set := setup{Bases: []string{s.url()}, Timeout: 10_000, TTL: 60_000, Token: "0123456789abcdef"}
		assert.Empty(t, l.start(t, set).do(acquire).Error)
		set.Token = "another"
		assert.Equal(t, "Denied", l.start(t, set).do(acquire).Error)
		set.Bases = []string{"http://locks.example:8080"}
		assert.Contains(t, []string{"ValueError", "TypeError"}, l.start(t, set).answer().Error, "in the clear")
	})
}

func TestARestartedHolderAdoptsItsLease(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s, f := serveBehindFront(t)
		first := l.start(t, setup{Bases: []string{s.url()}, Timeout: 10_000, TTL: 60_000})
		was := first.do(command{Do: "acquire", As: "a", Name: "x"})
		share := first.do(command{Do: "acquire", As: "s", Name: "gpu", Slots: 2})
		require.Empty(t, was.Error+share.Error)
		first.Kill()
		w := l.client(t, f.URL)
		assert.Equal(t, "Held", w.do(command{Do: "acquire", As: "b", Name: "x"}).Error, "the control: it cannot be acquired")
		f.loseNext("adopt")
		adopted := w.do(command{Do: "adopt", As: "c", Name: "x", Owner: "a", ID: was.ID})
		require.Empty(t, adopted.Error)
		assert.Equal(t, []string{was.Name, was.Owner, was.ID, was.Token}, []string{adopted.Name, adopted.Owner, adopted.ID, adopted.Token})
		assert.LessOrEqual(t, adopted.Remaining, was.Remaining, "adopting does not prolong")
		require.Empty(t, w.do(command{Do: "renew", As: "c"}).Error)
		assert.Greater(t, w.do(command{Do: "check", As: "c"}).Remaining, was.Remaining, "a renewal does")
		require.Empty(t, w.do(command{Do: "release", As: "c"}).Error)
		assert.Equal(t, "FREE", direct(t, s, "x").State)

		slot := w.do(command{Do: "adopt", As: "d", Name: share.Name, Owner: "s", ID: share.ID})
		require.Empty(t, slot.Error)
		assert.Equal(t, []string{"gpu", "gpu::slot::0001", "0"}, []string{slot.ShareOf, slot.Name, slot.Fence}, "the fence is in the answer to an acquire")
		require.Empty(t, w.do(command{Do: "release", As: "d"}).Error)
		assert.Equal(t, "FREE", direct(t, s, "gpu::slot::0001").State)
	})
}

func TestALeaseThatIsOverIsNotAdopted(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s := serve(t, "")
		w := l.client(t, s.url())
		a := w.do(command{Do: "acquire", As: "a", Name: "x"})
		require.Empty(t, a.Error)
		adopt := func(name, owner, id string) string {
			return w.do(command{Do: "adopt", As: "c", Name: name, Owner: owner, ID: id}).Error
		}
		assert.Empty(t, adopt("x", "a", a.ID), "the control")
		assert.Equal(t, "Stale", adopt("x", "b", a.ID))
		assert.Equal(t, "Stale", adopt("x", "a", "another"))
		assert.Equal(t, "NotFound", adopt("y", "a", a.ID))
		assert.Equal(t, "Invalid", adopt("x", "a", ""))
		require.Empty(t, w.do(command{Do: "release", As: "a"}).Error)
		assert.Equal(t, "Stale", adopt("x", "a", a.ID), "it was released")
		short := l.start(t, setup{Bases: []string{s.url()}, Timeout: 10_000, TTL: 2000})
		b := short.do(command{Do: "acquire", As: "b", Name: "z"})
		require.Empty(t, b.Error)
		await.Until(t, await.Soon, func() bool { return direct(t, s, "z").State != "HELD" }, "z expires")
		assert.Equal(t, "Expired", adopt("z", "b", b.ID))
	})
}

// It reads only, so that it has no unknown outcome.
func TestAnAdoptionWithoutAnAnswerDidNothing(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		_, f := serveBehindFront(t)
		w := l.client(t, f.URL)
		a := w.do(command{Do: "acquire", As: "a", Name: "x"})
		require.Empty(t, a.Error)
		f.loseEvery.Store(1)
		assert.Equal(t, "Unavailable", w.do(command{Do: "adopt", As: "b", Name: "x", Owner: "a", ID: a.ID}).Error)
		assert.Equal(t, "OutcomeUnknown", w.do(command{Do: "renew", As: "a"}).Error, "the control")
	})
}

// Its client would renew it after a third of a much longer TTL.
func TestAHeartbeatKeepsAnAdoptedLeaseThatIsNearItsEnd(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s, f := serveBehindFront(t)
		a := l.start(t, setup{Bases: []string{s.url()}, Timeout: 10_000, TTL: 12_000}).do(command{Do: "acquire", As: "a", Name: "x"})
		require.Empty(t, a.Error)
		w := l.client(t, f.URL)
		require.Empty(t, w.do(command{Do: "adopt", As: "b", Name: "x", Owner: "a", ID: a.ID}).Error)
		w.do(command{Do: "heartbeat", As: "b"})
		await.Until(t, await.Soon, func() bool { return w.do(command{Do: "check", As: "b"}).Remaining > 12_000 }, "it was not renewed")
	})
}
