package clients_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
)

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
