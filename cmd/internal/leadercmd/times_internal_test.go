package leadercmd

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/cmd/internal/supervise"
	"github.com/pglatch/pglatch/cmd/internal/test/overlap"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leadertest"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
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
