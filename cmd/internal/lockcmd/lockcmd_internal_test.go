package lockcmd

import (
	"context"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/cmd/internal/supervise"
	"github.com/pglatch/pglatch/cmd/internal/test/overlap"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/monitor/fleet"
	"github.com/pglatch/pglatch/namespace"
)

func TestAVerdictOutweighsTablesThatWereNotRead(t *testing.T) {
	t.Parallel()
	view := func(problems ...string) lookup.View {
		return lookup.View{Snapshot: monitor.Snapshot{Fleet: &fleet.Fleet{Problems: problems}}}
	}
	denied, late := "the monitor's role may not read the tables of turns: GRANT SELECT on them, and USAGE on their schema, shows them", "the tables of ticks did not answer in time"
	for _, c := range []struct {
		view lookup.View
		want int
	}{{view(), 0}, {view(late), 69}, {view(late, denied), 77}, {lookup.View{}, 69}} {
		assert.Equal(t, c.want, program.Code((&judge{exitCode: true}).code(false, c.view.Unknown())), "%v", c.view.Unread())
		assert.Equal(t, 3, program.Code((&judge{exitCode: true}).code(true, c.view.Unknown())), "%v", c.view.Unread())
		assert.Zero(t, program.Code((&judge{}).code(true, c.view.Unknown())), "control: without --exit-code")
	}
}

func TestAVerdictThatIsFoldedHasNotEnded(t *testing.T) {
	t.Parallel()
	long := monitor.Verdict{Name: "held-long", Key: "order/7", Severity: "warning"}
	grows := monitor.Verdict{Name: "queue-grows", Key: "order/7", Severity: "warning"}
	deadlock := monitor.Verdict{Name: "deadlock", Key: "order/7", Severity: "critical", Folded: []monitor.Verdict{long, grows}}
	var open []monitor.Verdict
	for _, look := range []struct {
		now  []monitor.Verdict
		want []string
	}{
		{[]monitor.Verdict{long}, []string{"raised held-long"}},
		{[]monitor.Verdict{deadlock}, []string{"raised deadlock"}},
		{[]monitor.Verdict{deadlock}, nil},
		{[]monitor.Verdict{long, grows}, []string{"ended deadlock", "raised queue-grows"}}, // queue-grows had not been printed before
		{[]monitor.Verdict{deadlock}, []string{"raised deadlock"}},
		{nil, []string{"ended held-long", "ended queue-grows", "ended deadlock"}}, // the control: both are over
		{nil, nil},
	} {
		var changed []verdictChange
		changed, open = verdictChanges(time.Time{}, open, look.now)
		var got []string
		for _, c := range changed {
			got = append(got, c.Change+" "+c.Verdict.Name)
		}
		assert.Equal(t, look.want, got)
	}
}

// parseRun makes the flags of run.
func parseRun(t *testing.T, args ...string) (*runCommand, *cobra.Command) {
	t.Helper()
	r := new(runCommand)
	cmd := new(cobra.Command)
	r.addFlags(cmd)
	require.NoError(t, cmd.ParseFlags(args))
	return r, cmd
}

func TestTheCommandIsKilledBeforeTheServerGivesTheLockAwayWhateverTheTimes(t *testing.T) {
	t.Parallel()
	accepted, refused := 0, 0
	for _, ttl := range []string{"500ms", "1s", "1.7s", "3s", "10s", "15s", "1m", "10m", "24h"} {
		for _, killAfter := range []string{"", "0s", "50ms", "1s", "3s", "5s", "30s", "1h"} {
			args := []string{"--session-ttl", ttl}
			if killAfter != "" {
				args = append(args, "--kill-after", killAfter)
			}
			r, cmd := parseRun(t, args...)
			if err := r.fit(cmd.Flags()); err != nil {
				refused++
				assert.Equal(t, program.ExitUsage, program.Code(err), args)
				assert.ErrorContains(t, err, "--kill-after", args)
				assert.NotEmpty(t, killAfter, "the default always fits")
				continue
			}
			accepted++
			killed := r.sessionTTL - r.sessionTTL/10 - r.lossDrain + r.KillAfter // after the last answered statement
			assert.Less(t, killed, r.sessionTTL*89/100, args)
		}
	}
	t.Log(accepted, "accepted,", refused, "refused")
	assert.Greater(t, min(accepted, refused), 20)

	r, cmd := parseRun(t, "--on-lost", "warn", "--kill-after", "1h")
	require.NoError(t, r.fit(cmd.Flags()), "the command is to go on")
	assert.Zero(t, r.lossDrain)
}

// runUnderLock starts a pglatch run.
func runUnderLock(d *overlap.Pair, dsn string) {
	d.Helper()
	r, cmd := parseRun(d.T, "--session-ttl", overlap.Lease.String())
	require.NoError(d, r.fit(cmd.Flags()))
	if d.Old {
		r.KillAfter, r.lossDrain = supervise.DefaultKillAfter, 0
	}
	app := program.New()
	settings := pflag.NewFlagSet("settings", pflag.ContinueOnError)
	app.AddFlags(settings)
	require.NoError(d, settings.Parse([]string{"--database-url", dsn, "--connect-timeout", await.Patience.String()}))
	command := d.Deaf()
	command.KillAfter = r.KillAfter
	d.Start(func(ctx context.Context) {
		locker, err := openLocker(ctx, app, &r.taking)
		if !assert.NoError(d, err) {
			return
		}
		defer locker.Close()
		if lock, err := take(ctx, app, &r.taking, locker, namespace.Pair(7, 201)); err == nil {
			_ = r.runUnder(ctx, lock, command)
		}
	})
}

func TestTheCommandOfAHolderThatIsCutOffIsGoneWhenTheNextOneRuns(t *testing.T) {
	t.Parallel()
	overlap.RequireNone(t, runUnderLock)
}

func TestTheCommandOfAHolderThatIsCutOffGoesOnWithTheTimesOfTheLibraryControl(t *testing.T) {
	t.Parallel()
	overlap.RequireSome(t, runUnderLock)
}

func TestTheLossDrainOfALockerLeavesTimeForPings(t *testing.T) {
	t.Parallel()
	for drain, good := range map[time.Duration]bool{-1: false, 0: true, 2 * time.Second: true, 2*time.Second + 1: false} {
		_, err := advisory.Open(t.Context(), advisory.Config{DSN: "postgres://127.0.0.1:1/d", SessionTTL: 5 * time.Second, LossDrain: drain})
		require.Error(t, err) // nobody is there
		assert.Equal(t, good, program.Code(err) == program.ExitUnavailable, "%v: %v", drain, err)
	}
}
