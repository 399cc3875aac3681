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
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/cmd/internal/supervise"
	"github.com/pglatch/pglatch/cmd/internal/test/overlap"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/namespace"
)

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
