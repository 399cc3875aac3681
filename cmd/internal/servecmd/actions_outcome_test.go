package servecmd_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestTheOutcomeOfARequestThatNobodyAnswersIsUnknown(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	conn, _ := c.session("web-3", 1) // no process answers for it
	a := c.confirm(askToken, c.send(askToken, "prepare", `{"action":"ask","key":"order/1"}`).Confirm, "a deploy")
	require.Equal(t, http.StatusOK, a.status, "%+v", a)
	assert.Equal(t, "unknown", a.Outcome)
	assert.Contains(t, a.Text, "the holder does not answer")
	assert.Equal(t, entry{Who: "ann", Role: "ask", Action: "ask", Target: "key order/1", Why: "a deploy", Outcome: "unknown"}, c.essential())
	assert.True(t, lives(t, conn))
}

// What one person was shown is gone when another was faster. The audit says what became of both.
func TestTwoPersonsEndOneSessionAtOnce(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	const otto = "other-0123456789abcdef"
	c.change(people + otto + " role=end name=otto\n")
	conn, pid := c.session("web-3", 1)
	next, _ := c.session("web-4", 2)
	request := fmt.Sprintf(`{"action":"terminate","session":%d}`, pid)
	tokens := map[string]string{"eva": endToken, "otto": otto}
	confirms := map[string]string{}
	for who, token := range tokens {
		confirms[who] = c.send(token, "prepare", request).Confirm
	}
	var mu sync.Mutex
	var work sync.WaitGroup
	answers := map[string]answer{}
	for who, token := range tokens {
		work.Go(func() {
			a := c.confirm(token, confirms[who], "it hangs")
			mu.Lock()
			defer mu.Unlock()
			answers[who] = a
		})
	}
	work.Wait()
	assert.False(t, lives(t, conn))
	assert.True(t, lives(t, next), "control: another session goes on")
	ends := map[string]string{}
	for _, e := range c.entries() {
		if e.Action == "terminate" && e.Outcome != "begun" {
			ends[e.Who] += e.Outcome
		}
	}
	done := 0
	for who, a := range answers {
		switch a.status {
		case http.StatusOK:
			assert.Equal(t, a.Outcome, ends[who], "%s: %+v", who, a)
			if a.Outcome == "done" {
				done++
			}
		default:
			assert.Equal(t, http.StatusUnprocessableEntity, a.status, "%s: %+v", who, a)
			assert.Equal(t, "failed", ends[who], "%s: %+v", who, a)
		}
	}
	assert.Positive(t, done, "%+v", answers)
}

// PostgreSQL gives the number of a session that has ended to a later one.
func TestASessionThatHasTheNumberOfAnotherIsNotEnded(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	app := program.New()
	app.UseDatabase(dsn, "the test")
	l, err := lookup.Open(app, nil, 0)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	conn := clitest.Connect(t, dsn, "web-3")
	clitest.Execute(t, conn, "SELECT pg_advisory_lock(1, 1)")
	v, err := l.Victim(t.Context(), conn.PgConn().PID())
	require.NoError(t, err)
	began := v.Start
	v.Start = began.Add(-time.Microsecond) // of the one that was shown
	err = l.Terminate(t.Context(), v)
	assert.Equal(t, program.ExitFree, program.Code(err), "%v", err)
	require.ErrorContains(t, err, "has ended meanwhile")
	require.True(t, lives(t, conn))
	v.Start = began
	require.NoError(t, l.Terminate(t.Context(), v), "control: the one that was shown")
	assert.False(t, lives(t, conn))
}
