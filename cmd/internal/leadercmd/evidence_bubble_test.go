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

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/leadertest"
	lockslog "github.com/pglatch/pglatch/observe/slog"
)

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
			time.Sleep(goesOn)
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
		time.Sleep(time.Minute)
		first.Cut()
		time.Sleep(time.Minute)
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
