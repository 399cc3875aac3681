package leadercmd

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/cmd/internal/supervise"
	"github.com/pglatch/pglatch/cmd/internal/test/overlap"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
	lockslog "github.com/pglatch/pglatch/observe/slog"
)

// parse makes the flags of leader run.
func parse(t *testing.T, args ...string) (*runCommand, *pflag.FlagSet) {
	t.Helper()
	r, f := new(runCommand), pflag.NewFlagSet("run", pflag.ContinueOnError)
	r.addFlags(f)
	require.NoError(t, f.Parse(args))
	return r, f
}

// killed is when, after the start of the last good renewal, the command is killed at
// the latest: leadership ends a tenth of the lease and LossDrain before the lease.
func (r *runCommand) killed() time.Duration {
	c := r.config
	return c.LeaseDuration - c.LeaseDuration/10 - c.LossDrain + r.KillAfter
}

func TestTheCommandIsKilledBeforeAnotherNodeCanLeadWhateverTheTimes(t *testing.T) {
	t.Parallel()
	accepted, refused := 0, 0
	for _, lease := range []string{"500ms", "1s", "1.7s", "3s", "10s", "15s", "30s", "1m", "10m", "24h"} {
		for _, killAfter := range []string{"", "0s", "50ms", "1s", "3s", "3500ms", "5s", "30s", "1h"} {
			for _, times := range [][]string{nil, {"--health-interval", "1s"}, {"--health-interval", "100ms", "--renew-timeout", "200ms"}, {"--renew-timeout", "8s"}} {
				args := append([]string{"--lease-duration", lease}, times...)
				if killAfter != "" {
					args = append(args, "--kill-after", killAfter)
				}
				r, f := parse(t, args...)
				if err := r.fit(f); err != nil {
					refused++
					assert.Equal(t, program.ExitUsage, program.Code(err), args)
					assert.ErrorContains(t, err, "--kill-after", args)
					continue
				}
				accepted++
				assert.LessOrEqual(t, r.killed(), r.config.LeaseDuration*88/100, args)
				r.config.Name, r.config.Backend = "test", leadertest.NewElection().Backend()
				_, err := leader.New(r.config)
				assert.NoError(t, err, args)
			}
		}
	}
	t.Log(accepted, "accepted,", refused, "refused")
	assert.Greater(t, min(accepted, refused), 50)
}

func TestTheCommandIsKilledTooLateWithTheTimesOfTheLibraryControl(t *testing.T) {
	t.Parallel()
	r, _ := parse(t)
	r.config.LossDrain = r.config.LeaseDuration / 10
	assert.Greater(t, r.killed(), r.config.LeaseDuration)
}

func TestTheDefaultsFitIntoEveryLease(t *testing.T) {
	t.Parallel()
	for lease := driver.MinLeaseDuration; lease <= driver.MaxLeaseDuration; lease += lease / 7 {
		r, f := parse(t, "--lease-duration", lease.String())
		assert.NoError(t, r.fit(f), lease)
	}
}

func TestALeaseThatIsTooShortForTheCommandNamesOneThatIsNot(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"--kill-after", "5s"},
		{"--kill-after", "10m"},
		{"--lease-duration", "1s", "--health-interval", "800ms"},
		{"--lease-duration", "20s", "--renew-timeout", "9s", "--kill-after", "4s"},
	} {
		r, f := parse(t, args...)
		err := r.fit(f)
		require.ErrorContains(t, err, "use a --lease-duration of ", args)
		_, lease, _ := strings.Cut(err.Error(), "use a --lease-duration of ")
		r, f = parse(t, append(args, "--lease-duration", lease)...)
		assert.NoError(t, r.fit(f), "%v --lease-duration %s", args, lease)
	}
}

// candidate starts a node of an election.
func candidate(d *overlap.Pair, dsn string) {
	d.Helper()
	backend, err := postgres.New(postgres.Config{DSN: dsn, Key: namespace.Pair(7, 200), CreateTable: true})
	require.NoError(d, err)
	r, flags := parse(d.T, "--lease-duration", overlap.Lease.String())
	require.NoError(d, r.fit(flags))
	if d.Old {
		r.KillAfter, r.config.LossDrain = supervise.DefaultKillAfter, 0
	}
	r.config.Name, r.config.Backend = "test", backend
	elector, err := leader.New(r.config)
	require.NoError(d, err)
	l := &ledCommand{runCommand: r, app: program.New(), election: &Election{Name: "test"}, elector: elector, command: d.Deaf()}
	l.command.KillAfter, l.command.Drain = r.KillAfter, -1
	d.Start(func(ctx context.Context) { _ = l.run(ctx) })
}

func TestTheCommandOfALeaderThatIsCutOffIsGoneWhenTheNextOneRuns(t *testing.T) {
	t.Parallel()
	overlap.RequireNone(t, candidate)
}

func TestTheCommandOfALeaderThatIsCutOffGoesOnWithTheTimesOfTheLibraryControl(t *testing.T) {
	t.Parallel()
	overlap.RequireSome(t, candidate)
}

// A day of a follower is 43,200 attempts.
func TestAFollowersAttemptsAreLoggedOnceAfterEachOtherTransition(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	var a attemptLog
	day := func() {
		for range 43_200 {
			a.transition(log, leader.Follower, leader.Acquiring)
			a.transition(log, leader.Acquiring, leader.Follower)
		}
	}
	lines := func() int { return strings.Count(out.String(), "\n") }
	a.transition(log, leader.Stopped, leader.Follower)
	day()
	assert.Equal(t, 2, lines(), "%.1000s", out.String())
	day()
	assert.Equal(t, 2, lines())
	a.transition(log, leader.Follower, leader.Acquiring)
	a.transition(log, leader.Acquiring, leader.Leader)
	a.transition(log, leader.Leader, leader.Follower)
	day()
	assert.Equal(t, 4, lines(), "it has led meanwhile")

	debug := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	out.Reset()
	new(attemptLog).transition(debug, leader.Follower, leader.Acquiring)
	assert.Empty(t, out.String(), "the Elector logs it")
}

var midnight = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

// ran is work that ran from one millisecond to another, on a clock.
func ran(identity, term, clock string, token uint64, from, to int) *interval {
	ended := midnight.Add(time.Duration(to) * time.Millisecond)
	return &interval{
		Identity: identity, Term: term, FencingToken: token, clock: clock,
		Began: midnight.Add(time.Duration(from) * time.Millisecond), Ended: &ended, lasted: time.Duration(to-from) * time.Millisecond,
	}
}

func endless(i *interval) *interval {
	i.Ended = nil
	return i
}

func set(i *interval, lasted time.Duration) *interval {
	i.lasted = lasted
	return i
}

func TestIntervalsAreJudgedByWhatTheirClocksCanProve(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		want verdict
		all  []*interval
	}{
		"far apart":                                 {apart, []*interval{ran("a", "1.1", "x", 1, 0, 1000), ran("b", "1.2", "y", 2, 1011, 2000)}},
		"in any order of the files":                 {apart, []*interval{ran("b", "1.2", "y", 2, 1011, 2000), ran("a", "1.1", "x", 1, 0, 1000)}},
		"close on one clock":                        {apart, []*interval{ran("a", "1.1", "x", 1, 0, 1000), ran("b", "1.2", "x", 2, 1000, 2000)}},
		"close on clocks that differ":               {unknown, []*interval{ran("a", "1.1", "x", 1, 0, 1000), ran("b", "1.2", "y", 2, 1010, 2000)}},
		"close on clocks that nobody knows":         {unknown, []*interval{ran("a", "1.1", "", 1, 0, 1000), ran("b", "1.2", "", 2, 1005, 2000)}},
		"a little together on clocks that differ":   {unknown, []*interval{ran("a", "1.1", "x", 1, 0, 1000), ran("b", "1.2", "y", 2, 990, 2000)}},
		"a little together on one clock":            {met, []*interval{ran("a", "1.1", "x", 1, 0, 1000), ran("b", "1.2", "x", 2, 999, 2000)}},
		"together":                                  {met, []*interval{ran("a", "1.1", "x", 1, 0, 1000), ran("b", "1.2", "y", 2, 500, 2000)}},
		"one within the other, a third between":     {met, []*interval{ran("a", "1.1", "x", 1, 0, 9000), ran("b", "1.2", "y", 2, 500, 600), ran("c", "1.3", "y", 3, 700, 800)}},
		"the same node again":                       {apart, []*interval{ran("a", "1.1", "x", 1, 0, 1000), ran("a", "1.2", "x", 2, 1001, 2000)}},
		"a node that works in two terms at once":    {met, []*interval{ran("a", "1.1", "x", 1, 0, 1000), ran("a", "1.2", "x", 2, 900, 2000)}},
		"two functions of one leadership":           {apart, []*interval{ran("a", "1.1", "x", 1, 0, 1000), ran("a", "1.1", "x", 1, 500, 2000)}},
		"one was killed":                            {unknown, []*interval{endless(ran("a", "1.1", "x", 1, 0, 0)), ran("b", "1.2", "x", 2, 5000, 6000)}},
		"the last one still runs":                   {apart, []*interval{ran("a", "1.1", "x", 1, 0, 1000), endless(ran("b", "1.2", "x", 2, 1011, 0))}},
		"a clock was set back while it led":         {unknown, []*interval{set(ran("a", "1.1", "x", 1, 0, 1000), 4*time.Second), ran("b", "1.2", "y", 2, 2000, 3000)}},
		"terms that fall":                           {met, []*interval{ran("a", "1.2", "x", 2, 0, 1000), ran("b", "1.1", "y", 1, 2000, 3000)}},
		"one term twice":                            {met, []*interval{ran("a", "1.2", "x", 2, 0, 1000), ran("b", "1.2", "y", 2, 2000, 3000)}},
		"no terms, as on a backend without a table": {apart, []*interval{ran("a", "none", "x", 0, 0, 1000), ran("b", "none", "y", 0, 2000, 3000)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := examine("scheduler", c.all, 10*time.Millisecond)
			assert.Equal(t, c.want, e.Verdict, "%+v", e.Findings)
			assert.Equal(t, c.want == apart, len(e.Findings) == 0)
		})
	}
}

// A logging node of an election in memory, whose work goes on for a while after its context ended.
func work(t *testing.T, backend leader.Backend, identity string, log *bytes.Buffer, goesOn time.Duration) (stop func()) {
	t.Helper()
	e, err := leader.New(leader.Config{Name: "scheduler", Identity: identity, Backend: backend})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- e.Run(ctx, lockslog.Work(slog.New(slog.NewJSONHandler(log, nil)), e, func(ctx context.Context) error {
			<-ctx.Done()
			bubble.Sleep(goesOn)
			return ctx.Err()
		}))
	}()
	return func() {
		cancel()
		require.NoError(t, <-ended)
	}
}

// cutOff has a leader cut off, and returns what the logs prove.
func cutOff(t *testing.T, goesOn time.Duration) *evidence {
	t.Helper()
	var all []*interval
	synctest.Test(t, func(t *testing.T) {
		election := leadertest.NewElection()
		first, second := election.Backend(), election.Backend()
		var one, two bytes.Buffer
		fmt.Fprintln(&one, "a line of another program\n{\"msg\":\"work\"}")
		stopOne := work(t, first, "a", &one, goesOn)
		synctest.Wait()
		stopTwo := work(t, second, "b", &two, 0)
		bubble.Sleep(time.Minute)
		first.Cut()
		bubble.Sleep(time.Minute)
		first.Heal()
		stopTwo()
		stopOne()
		for _, log := range []*bytes.Buffer{&one, &two} {
			read, err := readIntervals(log)
			require.NoError(t, err)
			all = append(all, read...)
		}
	})
	return examine("scheduler", all, 10*time.Millisecond)
}

func TestTheLogsOfALeaderThatWasCutOffProveThatItsWorkEndedInTime(t *testing.T) {
	t.Parallel()
	e := cutOff(t, 0)
	assert.Equal(t, apart, e.Verdict, "%+v", e.Findings)
	assert.GreaterOrEqual(t, e.Terms, 2)
	assert.NotNil(t, e.Closest)
}

func TestTheLogsOfALeaderWhoseWorkIgnoresItsContextShowThatItMetTheNextControl(t *testing.T) {
	t.Parallel()
	e := cutOff(t, 20*time.Second)
	require.Equal(t, met, e.Verdict)
	assert.Equal(t, "a", e.Findings[0].First.Identity)
	assert.Equal(t, "b", e.Findings[0].Second.Identity)
}

func TestARecordOfWorkThatIsNotOneIsAnErrorWithItsLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"\n" + `{"msg":"work_began","election":"a"}`:                                                     "line 2: a record of work needs",
		`{"msg":"work_ended","election":"a","identity":"b","term":"1.1","began":"2026-03-01T00:00:00Z"}`: "line 1: a record of work needs",
		`{"msg":"work_began","election":"a","identity":"b","term":"1.1","began":"now"}`:                  "line 1: parsing time",
		`{"msg":"work_began"`:          "line 1: unexpected end",
		strings.Repeat("x", maxLine+1): "a line is longer",
	} {
		_, err := readIntervals(strings.NewReader(text))
		require.ErrorContains(t, err, want)
	}
}

func FuzzReadIntervals(f *testing.F) {
	f.Add(`{"msg":"work_ended","election":"a","identity":"b","term":"1.1","began":"2026-03-01T00:00:00Z","ended":"2026-03-01T00:00:01Z","lasted":1000000000}`)
	f.Fuzz(func(_ *testing.T, text string) {
		all, err := readIntervals(strings.NewReader(text))
		if err == nil {
			var b bytes.Buffer
			examine("a", all, time.Millisecond).text(&b)
		}
	})
}
