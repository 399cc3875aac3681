package leadercmd

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/cmd/internal/supervise"
	"github.com/pglatch/pglatch/cmd/internal/test/overlap"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

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
