package advisory_test

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// A viewer asks what the processes of a database say.
type viewer struct {
	t    *testing.T
	dsn  string
	conn *pgx.Conn
}

func view(t *testing.T, dsn string) *viewer {
	t.Helper()
	v := &viewer{t: t, dsn: dsn}
	t.Cleanup(func() {
		if v.conn != nil {
			_ = v.conn.Close(context.Background())
		}
	})
	return v
}

// connection connects again if a question closed the connection: its UNLISTEN has a second.
func (v *viewer) connection() *pgx.Conn {
	v.t.Helper()
	if v.conn == nil || v.conn.IsClosed() {
		conn, err := pgx.Connect(v.t.Context(), v.dsn)
		require.NoError(v.t, err)
		v.conn = conn
	}
	return v.conn
}

// until asks until one answer is as it shall be.
func (v *viewer) until(q introspect.Question, ok func(a introspect.Answer) bool) introspect.Answer {
	v.t.Helper()
	var found introspect.Answer
	await.Until(v.t, await.Patience, func() bool {
		answers, err := introspect.Ask(v.t.Context(), v.connection(), q)
		require.NoError(v.t, err)
		for _, a := range answers.Answers {
			if ok(a) {
				found = a
				return true
			}
		}
		return false
	})
	return found
}

func TestAProcessSaysWhatItHoldsAndWhatWaitsInIt(t *testing.T) {
	t.Parallel()
	for _, locksPerConn := range []int{1, 100} {
		dsn := pgtest.DSN(t)
		locker, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn, LocksPerConn: locksPerConn, Wait: 5 * time.Minute, Answer: introspect.Config{Service: "billing"}})
		require.NoError(t, err)
		defer locker.Close()
		named := namespace.Must(12, "invoice")
		hashed, err := named.Text("Frühling/2026") // its number says nothing of it
		require.NoError(t, err)

		lock, err := locker.With(advisory.Options{Label: "nightly run"}).Acquire(t.Context(), hashed)
		require.NoError(t, err)
		other, err := locker.Acquire(t.Context(), named.ID(7))
		require.NoError(t, err)
		slot, err := locker.AcquireSlot(t.Context(), named.ID(9), 1)
		require.NoError(t, err)

		var wg sync.WaitGroup
		waits, cancel := context.WithCancel(other.Context())
		wg.Go(func() { _, _ = locker.With(advisory.Options{Label: "impatient"}).Acquire(waits, hashed) })
		wg.Go(func() { _, _ = locker.AcquireSlot(waits, named.ID(9), 1) })

		v := view(t, dsn)
		a := v.until(introspect.Question{Prefix: "invoice/"}, func(a introspect.Answer) bool {
			return len(a.Locks) == 3 && len(a.Waits) == 2 && !slices.ContainsFunc(a.Waits, tooNew) && slices.ContainsFunc(a.Locks, hasWaiter)
		})
		require.Equal(t, "billing", a.Process.Service)
		byKey := make(map[string]introspect.Lock)
		for _, l := range a.Locks {
			byKey[l.Key] = l
		}
		l := byKey["invoice/Frühling/2026"]
		require.Equal(t, hashed.Tag(), l.Tag)
		require.Equal(t, "nightly run", l.Label)
		require.Equal(t, lock.PID(), l.Session)
		require.Equal(t, 1, l.Waiters)
		require.Positive(t, l.Age)
		require.Positive(t, l.OldestWait)
		require.Equal(t, locksPerConn > 1, l.Beside > 0, "others share its session")
		require.Equal(t, other.PID(), byKey["invoice/7"].Session)
		s := byKey[slot.Key().String()]
		require.Equal(t, "invoice/9", s.Semaphore)
		require.Equal(t, 1, s.Slots)

		byKey2 := make(map[string]introspect.Wait)
		for _, w := range a.Waits {
			byKey2[w.Key] = w
			require.Equal(t, []namespace.Tag{named.ID(7).Tag()}, w.Holds, "what its caller holds")
			require.Positive(t, w.Age)
			require.Positive(t, w.Left)
		}
		require.Equal(t, "impatient", byKey2["invoice/Frühling/2026"].Label)
		require.True(t, byKey2["invoice/9"].Semaphore)
		require.Equal(t, []namespace.Tag{slot.Key().Tag()}, byKey2["invoice/9"].Slots)

		a = v.until(introspect.Question{Limit: 1}, func(introspect.Answer) bool { return true })
		require.Len(t, a.Waits, 1)
		require.Equal(t, 2, a.AllWaits, "also what is beyond the limit")
		require.Len(t, a.Locks, 1)
		require.Equal(t, 3, a.AllLocks)

		a = v.until(introspect.Question{Tags: []namespace.Tag{named.ID(9).Tag()}}, func(introspect.Answer) bool { return true })
		require.Len(t, a.Locks, 1, "the slots of a semaphore that is asked for")
		require.Len(t, a.Waits, 1)

		cancel()
		wg.Wait()
		require.NoError(t, lock.Release())
		require.NoError(t, other.Release())
		require.NoError(t, slot.Release())
	}
}

// An answer describes locks before waits, so that a wait can begin in between.
func tooNew(w introspect.Wait) bool { return w.Age <= 0 }

func hasWaiter(l introspect.Lock) bool { return l.Label == "nightly run" && l.OldestWait > 0 }

func TestAWaitIsAsOldAsItsCallAndNotAsItsWaitStep(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	holder, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn, Answer: introspect.Config{Off: true}})
	require.NoError(t, err)
	defer holder.Close()
	lock, err := holder.Acquire(t.Context(), agents.ID(1))
	require.NoError(t, err)
	locker, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn, Wait: advisory.NoTimeout})
	require.NoError(t, err)
	defer locker.Close()
	waits, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = locker.Acquire(waits, agents.ID(1)) })
	a := view(t, dsn).until(introspect.Question{}, func(a introspect.Answer) bool {
		return len(a.Waits) == 1 && a.Waits[0].Age > 2*time.Second && a.Waits[0].Session != 0 // that which waits at the server
	})
	require.Empty(t, a.Locks)
	cancel()
	wg.Wait()
	require.NoError(t, lock.Release())
}

func TestAHolderLearnsThatItsReleaseWasAskedForIfItAllowsThat(t *testing.T) {
	t.Parallel()
	for _, allowed := range []bool{true, false} {
		dsn := pgtest.DSN(t)
		locker, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn, Answer: introspect.Config{AllowAsk: allowed}})
		require.NoError(t, err)
		defer locker.Close()
		v := view(t, dsn)
		ran, err := locker.DoOrSkip(t.Context(), agents.ID(1), func(ctx context.Context) error {
			v.until(introspect.Question{}, func(a introspect.Answer) bool { return len(a.Locks) == 1 })
			asked := advisory.Asked(ctx)
			replies, err := introspect.Send(ctx, v.connection(), introspect.Request{Timeout: 20 * time.Second, Kind: introspect.AskRelease, Tag: agents.ID(1).Tag()})
			require.NoError(t, err)
			require.Len(t, replies, 1)
			require.Equal(t, "agent/1", replies[0].Key)
			require.Equal(t, allowed, replies[0].Done, replies[0].Refused)
			if allowed {
				<-asked
			} else {
				require.Contains(t, replies[0].Refused, "AllowAsk")
				select {
				case <-asked:
					t.Error("it was asked all the same")
				default:
				}
			}
			a := v.until(introspect.Question{}, func(a introspect.Answer) bool { return len(a.Locks) == 1 })
			require.Equal(t, allowed, a.Locks[0].Asked)
			require.NoError(t, ctx.Err(), "the lock stays held")
			return nil
		})
		require.NoError(t, err)
		require.True(t, ran)
		replies, err := introspect.Send(t.Context(), v.connection(), introspect.Request{Kind: introspect.AskRelease, Tag: agents.ID(1).Tag(), Timeout: 5 * time.Second})
		require.NoError(t, err)
		require.Empty(t, replies, "nobody holds it any more")
	}
}

func TestTheStackOfAHolderGoesToItsOwnLogIfItAllowsThat(t *testing.T) {
	t.Parallel()
	for _, allowed := range []bool{true, false} {
		dsn := pgtest.DSN(t)
		var log capture.Text
		locker, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn, Answer: introspect.Config{AllowDump: allowed}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		defer locker.Close()
		stuck, stop, stopped := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			_ = locker.Do(context.WithoutCancel(t.Context()), agents.ID(1), func(context.Context) error { stuckInTheMiddle(stuck, stop); return nil })
		}()
		<-stuck
		v := view(t, dsn)
		v.until(introspect.Question{}, func(a introspect.Answer) bool { return len(a.Locks) == 1 })
		replies, err := introspect.Send(t.Context(), v.connection(), introspect.Request{Timeout: 20 * time.Second, Kind: introspect.AskDump, Tag: agents.ID(1).Tag()})
		require.NoError(t, err)
		require.Len(t, replies, 1)
		require.Equal(t, allowed, replies[0].Done)
		told := func() bool { return strings.Contains(log.String(), "stuckInTheMiddle") }
		if allowed { // another goroutine logs
			await.Until(t, await.Soon, told)
		}
		require.Equal(t, allowed, told(), log.String())
		close(stop)
		<-stopped
	}
}

//go:noinline
func stuckInTheMiddle(stuck chan<- struct{}, stop <-chan struct{}) {
	close(stuck)
	<-stop
}

// crossing in the environment makes the test's program another process. It holds one lock. On
// request, it waits for another.
const crossing = "PGLATCH_TEST_CROSSING"

// cross is that other process: "1 2 true postgres://…" holds agent/1 and wants agent/2.
func cross(ctx context.Context, what string) error {
	var first, second int64
	var breaks bool
	var dsn string
	if _, err := fmt.Sscanf(what, "%d %d %t %s", &first, &second, &breaks, &dsn); err != nil {
		return err
	}
	locker, err := advisory.Open(ctx, advisory.Config{
		DSN: dsn, Wait: 5 * time.Minute, BreakDeadlocks: breaks, Answer: introspect.Config{Service: fmt.Sprintf("service-%d", first)},
	})
	if err != nil {
		return err
	}
	defer locker.Close()
	return locker.Do(ctx, agents.ID(first), func(ctx context.Context) error {
		fmt.Println("held")
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
			return err
		}
		return locker.With(advisory.Options{Label: "transfer"}).Do(ctx, agents.ID(second), func(context.Context) error { return nil })
	})
}

// startCrosser starts a process that runs cross. A line tells it to go on.
func startCrosser(t *testing.T, dsn string, first, second int64, breaks bool) *proctest.Process {
	t.Helper()
	p := proctest.Start(t, proctest.Self(t, fmt.Sprintf("%s=%d %d %t %s", crossing, first, second, breaks, dsn)))
	p.Expect("held")
	return p
}

func TestADeadlockAcrossProcessesIsBrokenAndNamed(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b, c := startCrosser(t, dsn, 1, 2, true), startCrosser(t, dsn, 2, 3, true), startCrosser(t, dsn, 3, 1, true)
	for _, process := range []*proctest.Process{a, b, c} {
		process.Tell("go on")
	}
	var failed []string
	for _, process := range []*proctest.Process{a, b, c} {
		failed = slices.AppendSeq(failed, process.Lines()) // nothing if it had both locks
	}
	require.NotEmpty(t, failed, "none can have got its locks otherwise")
	require.Less(t, len(failed), 3, "%q", failed)
	for _, text := range failed {
		require.Contains(t, text, "deadlock: service-")
		for i := 1; i <= 3; i++ {
			require.Contains(t, text, fmt.Sprintf("service-%d@", i))
			require.Contains(t, text, fmt.Sprintf("agent/%d (transfer)", i))
		}
		require.Regexp(t, `names: \[agent/\d \S+ agent/\d\]`, text, "the key that it waits for, and the one that it holds")
	}
}

func TestADeadlockAcrossProcessesIsSeenAndStaysIfNobodyMayBreakIt(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	a, b := startCrosser(t, dsn, 1, 2, false), startCrosser(t, dsn, 2, 1, false)
	a.Tell("go on")
	b.Tell("go on")
	v := view(t, dsn)
	var before introspect.Cycle
	seen := 0
	await.Until(t, 4*time.Minute, func() bool {
		answers, err := introspect.Ask(t.Context(), v.connection(), introspect.Question{})
		require.NoError(t, err)
		cycles := answers.Cycles()
		if len(cycles) == 1 && before.Same(cycles[0]) {
			seen++
		}
		if len(cycles) == 1 {
			before = cycles[0]
		}
		return seen > 20 && before.Youngest().Wait.Age > 3*time.Second // a breaker would have ended it
	}) // the processes wait for 5 min
	require.Contains(t, before.String(), "waits for agent/1 (transfer), which service-1@")
	require.True(t, strings.Contains(before.String(), "agent/2 (transfer)"))
}
