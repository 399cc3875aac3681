package await_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/bubble"
)

// A report is a test that fails, as its helpers see it.
type report struct {
	testing.TB
	text string
}

func (*report) Helper()  {}
func (*report) FailNow() { panic("failed") }
func (r *report) Errorf(_ string, args ...any) {
	for _, arg := range args {
		r.text += arg.(string)
	}
}

func TestWhatComesIsAwaited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		await.Until(t, time.Second, func() bool { return time.Since(began) >= 900*time.Millisecond })
		assert.InDelta(t, 900*time.Millisecond, time.Since(began), float64(10*time.Millisecond))
		events := make(chan string)
		time.AfterFunc(900*time.Millisecond, func() { events <- "event" })
		assert.Equal(t, "event", await.Receive(t, time.Second, events))
		close(events)
		assert.Empty(t, await.Receive(t, time.Second, events))
	})
}

func TestAQuestionThatTakesLongIsAskedLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began, asked := time.Now(), 0
		await.Until(t, time.Second, func() bool {
			asked++
			bubble.Sleep(100 * time.Millisecond)
			return time.Since(began) >= 900*time.Millisecond
		})
		assert.Equal(t, 4, asked, "two thirds of the time it is not asked")
	})
}

func TestWhatDoesNotComeFailsTheTest(t *testing.T) {
	t.Parallel()
	for what, wait := range map[string]func(tb testing.TB){
		"3 sessions": func(tb testing.TB) {
			tb.Helper()
			await.Until(tb, time.Second, func() bool { return false }, "%d sessions", 3)
		},
		"seen: nothing": func(tb testing.TB) {
			tb.Helper()
			await.Receive(tb, time.Second, make(chan int), func() string { return "seen: nothing" })
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := &report{TB: t}
			assert.Panics(t, func() { wait(r) })
			assert.Contains(t, r.text, what)
		})
	}
}
