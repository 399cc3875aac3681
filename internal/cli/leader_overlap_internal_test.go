package cli

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/supervise"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// patience bounds what must happen soon on a slow and busy machine.
const patience = 60 * time.Second

// cutLease is the lease of the elections whose leader is cut off.
const cutLease = 5 * time.Second

// A duel is two nodes of which one at a time may run its command. The commands ignore
// TERM and note their acts, in the order in which they happen, in one file. The network of the first goes through the proxy.
type duel struct {
	*testing.T
	dsn   string
	acts  string
	proxy *faultproxy.Proxy
	old   bool             // with the times that did not fit
	join  func(dsn string) // starts a node, which is stopped at the end of the test
}

func newDuel(t *testing.T) *duel {
	t.Helper()
	d := &duel{T: t, dsn: pgtest.DSN(t), acts: filepath.Join(t.TempDir(), "acts")}
	cc, err := pgx.ParseConfig(d.dsn)
	require.NoError(t, err)
	d.proxy, err = faultproxy.New(t.Context(), cc.Host+":"+strconv.Itoa(int(cc.Port)))
	require.NoError(t, err)
	t.Cleanup(d.proxy.Close)
	d.join = d.candidate
	return d
}

// deaf is a command that ignores TERM and notes its acts.
func (d *duel) deaf() supervise.Command {
	return supervise.Command{
		Args:       []string{"/bin/sh", "-c", `trap "" TERM; while :; do echo $$ >> ` + d.acts + `; sleep 0.01; done`},
		CloseStdin: true,
	}
}

// start starts what runs commands, and ends it and them at the end of the test.
func (d *duel) start(run func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var node sync.WaitGroup
	node.Go(func() { run(ctx) })
	d.Cleanup(func() {
		for _, pid := range d.all() { // which a signal of the program would have reached
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
		cancel()
		node.Wait()
	})
}

// candidate starts a node of an election.
func (d *duel) candidate(dsn string) {
	d.Helper()
	backend, err := postgres.New(postgres.Config{DSN: dsn, Key: namespace.Pair(7, 200), CreateTable: true})
	require.NoError(d, err)
	r, flags := parse(d.T, "--lease-duration", cutLease.String())
	require.NoError(d, r.fit(flags))
	if d.old {
		r.killAfter, r.config.LossDrain = supervise.DefaultKillAfter, 0
	}
	r.config.Name, r.config.Backend = "test", backend
	elector, err := leader.New(r.config)
	require.NoError(d, err)
	o := &office{leaderRun: r, app: &App{}, election: &Election{Name: "test"}, elector: elector, command: d.deaf()}
	o.command.KillAfter, o.command.Drain = r.killAfter, -1
	d.start(func(ctx context.Context) { _ = o.run(ctx) })
}

// all are the commands that acted, by their process ids, in the order of the acts.
func (d *duel) all() (acts []int) {
	d.Helper()
	data, err := os.ReadFile(d.acts)
	if !os.IsNotExist(err) {
		require.NoError(d, err)
	}
	for line := range strings.Lines(string(data)) {
		text, complete := strings.CutSuffix(line, "\n")
		if !complete {
			continue // it is being written
		}
		pid, err := strconv.Atoi(text)
		require.NoError(d, err)
		acts = append(acts, pid)
	}
	return acts
}

func (d *duel) eventually(condition func() bool, what string) {
	d.Helper()
	require.Eventually(d, condition, patience, 5*time.Millisecond, what)
}

// cut cuts the first node off and returns how many acts it did after its successor's
// first. late is by how much a goroutine that was due had to wait meanwhile, at most.
func (d *duel) cut() (overlap int, late time.Duration) {
	d.Helper()
	url, err := d.proxy.URL(d.dsn)
	require.NoError(d, err)
	d.join(url)
	d.eventually(func() bool { return len(d.all()) > 0 }, "the first node's command runs")
	first := d.all()[0]
	d.join(d.dsn)
	pool, err := pgx.Connect(d.Context(), d.dsn)
	require.NoError(d, err)
	defer func() { _ = pool.Close(context.Background()) }()
	d.eventually(func() bool {
		var waits bool
		err := pool.QueryRow(d.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`).Scan(&waits)
		return err == nil && waits
	}, "the second node waits")
	lateness := measureLateness()
	d.proxy.Set(faultproxy.Hold)
	d.eventually(func() bool {
		acts := d.all()
		return acts[len(acts)-1] != first && syscall.Kill(first, 0) == syscall.ESRCH
	}, "the second node's command runs, and the first one's has ended")
	succeeded := false
	for _, pid := range d.all() {
		switch {
		case pid != first:
			succeeded = true
		case succeeded:
			overlap++
		}
	}
	return overlap, lateness()
}

// measureLateness measures, until the returned function is called, how long a timer
// that is due has to wait for a processor.
func measureLateness() (worst func() time.Duration) {
	quit, result := make(chan struct{}), make(chan time.Duration)
	go func() {
		const interval = 5 * time.Millisecond
		worst, last := time.Duration(0), time.Now()
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				worst, last = max(worst, time.Since(last)-interval), time.Now()
			case <-quit:
				result <- worst
				return
			}
		}
	}()
	return func() time.Duration { close(quit); return <-result }
}

func TestTheCommandOfALeaderThatIsCutOffIsGoneWhenTheNextOneRuns(t *testing.T) {
	t.Parallel()
	requireNoOverlap(t, newDuel)
}

// requireNoOverlap cuts nodes off until the machine was not too busy to judge it.
func requireNoOverlap(t *testing.T, duelOf func(*testing.T) *duel) {
	t.Helper()
	for range 5 {
		overlap, late := 0, time.Duration(0)
		t.Run("cut", func(t *testing.T) { overlap, late = duelOf(t).cut() })
		if overlap > 0 && late > cutLease/clockShare/4 { // the kernel had signals to deliver meanwhile, too
			t.Logf("%d acts overlap, and this machine was too busy to run what was due for %v: beginning again", overlap, late)
			continue
		}
		assert.Zero(t, overlap, "acts of the old command after the first of the new one; timers were late by %v", late)
		return
	}
	require.Fail(t, "this machine was too busy in each of five attempts: nothing is known")
}

func TestTheCommandOfALeaderThatIsCutOffGoesOnWithTheTimesOfTheLibraryControl(t *testing.T) {
	t.Parallel()
	d := newDuel(t)
	d.old = true
	overlap, _ := d.cut()
	t.Log(overlap, "acts of the old command after the first of the new one")
	assert.NotZero(t, overlap)
}
