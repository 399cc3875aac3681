package pgsession

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	awaiting "github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

func TestWaitsAndUnlocksWriteNothingToTheServersLog(t *testing.T) {
	pgtest.Long(t)
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{
		"autovacuum": "off", "log_checkpoints": "off", "log_lock_waits": "on", "checkpoint_timeout": "1h",
	}})
	p := newPool(t, server.DSN(""), nil)
	holder := take(t, p, pairKey)
	waiters := make([]*Session, 4)
	for i := range waiters {
		waiters[i] = acquire(t, p)
	}
	before, err := server.LogOffset()
	require.NoError(t, err)

	refused := func(s *Session) {
		ok, err := s.Wait(pairKey, session.Exclusive, time.Minute)
		assert.NoError(t, err)
		assert.False(t, ok)
	}
	var wg sync.WaitGroup
	for _, s := range waiters { // 12 wait steps, 11 s of waiting
		wg.Go(func() {
			for range 3 {
				refused(s)
			}
		})
	}
	wg.Wait()
	judge := connect(t, server.DSN(""))
	for _, s := range waiters {
		wg.Go(func() {
			for ok := false; !ok; { // in steps, until it is granted
				var err error
				if ok, err = s.Wait(pairKey, session.Exclusive, time.Minute); !assert.NoError(t, err) {
					return
				}
			}
			assert.NoError(t, s.Unlock(pairKey, session.Exclusive))
		})
		judge.waits(s.PID())
	}
	require.NoError(t, holder.Unlock(pairKey, session.Exclusive))
	wg.Wait()
	log, err := server.LogSince(before)
	require.NoError(t, err)
	assert.Empty(t, log)

	// One cancel request arrives as two signals. A backend that has answered the first
	// before it gets the second, on a busy machine one in 20,000, logs that.
	holder = take(t, p, pairKey)
	const rounds = 5
	for range rounds {
		for _, s := range waiters {
			var seen atomic.Bool
			wg.Go(func() {
				for !seen.Load() { // in steps, until the judge has seen one
					refused(s)
				}
			})
			judge.waits(s.PID())
			seen.Store(true)
			s.Interrupt()
		}
		wg.Wait()
		for _, s := range waiters {
			select {
			case <-s.interrupt: // it came after the step, and would end one that the judge does not see
			default:
			}
		}
	}
	log, err = server.LogSince(before)
	require.NoError(t, err)
	assert.LessOrEqual(t, strings.Count(log, "ERROR:"), 1, "of %d interrupts: %s", rounds*len(waiters), log)
	require.NoError(t, holder.Unlock(pairKey, session.Exclusive))

	// The control: the usual ways to do the same are logged.
	judge.exec("SELECT pg_advisory_lock(7, 9)")
	usual := connect(t, server.DSN(""))
	for _, sql := range []string{"SET lock_timeout = 20; SELECT pg_advisory_lock(7, 9)", "SELECT pg_advisory_unlock(7, 9)"} {
		_, _ = usual.try(sql)
	}
	log, err = server.LogSince(before)
	require.NoError(t, err)
	assert.Contains(t, log, "canceling statement due to lock timeout")
	assert.Contains(t, log, "you don't own a lock")
}

func TestTheSecondSignalOfACancelRequestIsNotLogged(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	judge, waiter := connect(t, server.DSN("")), connect(t, server.DSN(""))
	judge.exec("SELECT pg_advisory_lock(7, 9)")
	before, err := server.LogOffset()
	require.NoError(t, err)
	// A wait that sleeps until the test has seen it.
	wait := strings.Replace(waitSQL(pairKey, session.Exclusive, "1h"), "pg_sleep("+secondSignal+")", "pg_sleep(3600)", 1)
	answer, pid := make(chan []string, 1), waiter.conn.PID()
	go func() {
		row, err := waiter.try(wait)
		assert.NoError(t, err)
		answer <- row
	}()
	judge.waits(pid)
	judge.cancel(pid)
	awaiting.Until(t, patience, func() bool {
		return judge.exec("SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = " + format(pid))[0] == "t"
	})
	judge.cancel(pid)
	require.Equal(t, []string{"refused", format(pid)}, <-answer)
	log, err := server.LogSince(before)
	require.NoError(t, err)
	require.Empty(t, log)
}

func TestACancelRequestThatArrivesBeforeTheWaitIsNotLogged(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	judge, waiter := connect(t, server.DSN("")), connect(t, server.DSN(""))
	for name, sql := range map[string]string{"the parameters": partsSQL, "the mode": sharedSQL, "the key": "r[4]"} {
		before, err := server.LogOffset()
		require.NoError(t, err)
		// A wait that sleeps while it reads its parameters.
		wait := strings.Replace(waitSQL(pairKey, session.Exclusive, "1h"), ":= "+sql, ":= (SELECT "+sql+" FROM pg_sleep(3600))", 1)
		require.Contains(t, wait, "pg_sleep(3600)")
		answer, pid := make(chan []string, 1), waiter.conn.PID()
		go func() {
			row, err := waiter.try(wait)
			assert.NoError(t, err, name)
			answer <- row
		}()
		awaiting.Until(t, patience, func() bool {
			return judge.exec("SELECT wait_event = 'PgSleep' FROM pg_stat_activity WHERE pid = " + format(pid))[0] == "t"
		})
		judge.cancel(pid)
		require.Equal(t, []string{"refused", format(pid)}, <-answer, name)
		log, err := server.LogSince(before)
		require.NoError(t, err)
		require.Empty(t, log, name)
	}
}

// A DECLARE with an expression is covered by no handler.
func TestAWaitComputesNothingOutsideOfItsHandlers(t *testing.T) {
	t.Parallel()
	declared, body, found := strings.Cut(waitBlock, "BEGIN")
	require.True(t, found)
	assert.Contains(t, declared, "DECLARE")
	assert.NotContains(t, declared, ":=")
	assert.NotContains(t, declared, "DEFAULT")
	assert.NotContains(t, body, "DECLARE")
	assert.Regexp(t, `^\s*BEGIN\s`, body, "the handlers are those of an inner block and of the outer one")
}
