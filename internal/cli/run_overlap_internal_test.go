package cli

import (
	"context"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/supervise"
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
				assert.Equal(t, ExitUsage, Code(err), args)
				assert.ErrorContains(t, err, "--kill-after", args)
				assert.NotEmpty(t, killAfter, "the default always fits")
				continue
			}
			accepted++
			killed := r.sessionTTL - r.sessionTTL/10 - r.lossDrain + r.killAfter // after the last answered statement
			assert.Less(t, killed, r.sessionTTL*89/100, args)
		}
	}
	t.Log(accepted, "accepted,", refused, "refused")
	assert.Greater(t, min(accepted, refused), 20)

	r, cmd := parseRun(t, "--on-lost", "warn", "--kill-after", "1h")
	require.NoError(t, r.fit(cmd.Flags()), "the command is to go on")
	assert.Zero(t, r.lossDrain)
}

// runDuel is a duel of two pglatch run.
func runDuel(t *testing.T) *duel {
	t.Helper()
	d := newDuel(t)
	d.join = d.runUnderLock
	return d
}

func (d *duel) runUnderLock(dsn string) {
	d.Helper()
	r, cmd := parseRun(d.T, "--session-ttl", cutLease.String())
	require.NoError(d, r.fit(cmd.Flags()))
	if d.old {
		r.killAfter, r.lossDrain = supervise.DefaultKillAfter, 0
	}
	app := NewApp(Options{})
	app.settings.databaseURL, app.settings.connectTimeout = dsn, patience
	command := d.deaf()
	command.KillAfter = r.killAfter
	d.start(func(ctx context.Context) {
		locker, err := app.openLocker(ctx, &r.taking)
		if !assert.NoError(d, err) {
			return
		}
		defer locker.Close()
		if lock, err := app.take(ctx, &r.taking, locker, namespace.Pair(7, 201)); err == nil {
			_ = r.hold(ctx, lock, command)
		}
	})
}

func TestTheCommandOfAHolderThatIsCutOffIsGoneWhenTheNextOneRuns(t *testing.T) {
	t.Parallel()
	requireNoOverlap(t, runDuel)
}

func TestTheCommandOfAHolderThatIsCutOffGoesOnWithTheTimesOfTheLibraryControl(t *testing.T) {
	t.Parallel()
	d := runDuel(t)
	d.old = true
	overlap, _ := d.cut()
	t.Log(overlap, "acts of the old command after the first of the new one")
	assert.NotZero(t, overlap)
}

func TestTheLossDrainOfALockerLeavesTimeForPings(t *testing.T) {
	t.Parallel()
	for drain, good := range map[time.Duration]bool{-1: false, 0: true, 2 * time.Second: true, 2*time.Second + 1: false} {
		_, err := advisory.Open(t.Context(), advisory.Config{DSN: "postgres://127.0.0.1:1/d", SessionTTL: 5 * time.Second, LossDrain: drain})
		require.Error(t, err) // nobody is there
		assert.Equal(t, good, Code(err) == ExitUnavailable, "%v: %v", drain, err)
	}
}
