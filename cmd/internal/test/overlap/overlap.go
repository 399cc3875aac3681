// Package overlap cuts off a node that runs a command, and checks whether the command still runs when the next node's
// command does.
package overlap

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

	"github.com/pglatch/pglatch/cmd/internal/supervise"
	"github.com/pglatch/pglatch/internal/renew"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// Lease is the lease of the elections whose leader is cut off.
const Lease = 5 * time.Second

// A Pair is two nodes, only one of which may run its command at a time. The commands ignore TERM and record their
// operations, in the order in which they occur, in one file. The network of the first node goes through the proxy.
type Pair struct {
	*testing.T
	dsn        string
	operations string
	proxy      *faultproxy.Proxy
	Old        bool                      // uses the times that did not fit
	join       func(d *Pair, dsn string) // starts a node with d.start
}

// New makes a Pair of nodes that join starts.
func New(t *testing.T, join func(d *Pair, dsn string)) *Pair {
	t.Helper()
	d := &Pair{T: t, dsn: pgtest.DSN(t), operations: filepath.Join(t.TempDir(), "operations"), join: join}
	cc, err := pgx.ParseConfig(d.dsn)
	require.NoError(t, err)
	d.proxy, err = faultproxy.New(t.Context(), cc.Host+":"+strconv.Itoa(int(cc.Port)))
	require.NoError(t, err)
	t.Cleanup(d.proxy.Close)
	return d
}

// Deaf is a command that ignores TERM and records its operations.
func (d *Pair) Deaf() supervise.Command {
	return supervise.Command{
		Args:       []string{"/bin/sh", "-c", `trap "" TERM; while :; do echo $$ >> ` + d.operations + `; sleep 0.01; done`},
		CloseStdin: true,
	}
}

// Start runs run, which runs commands, and ends it and the commands at the end of the test.
func (d *Pair) Start(run func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(context.Background())
	var node sync.WaitGroup
	node.Go(func() { run(ctx) })
	d.Cleanup(func() {
		for _, pid := range d.all() { // a signal of the program would have reached them
			_ = syscall.Kill(-pid, syscall.SIGKILL)
		}
		cancel()
		node.Wait()
	})
}

// all returns the process ids of the commands that acted, in the order of the operations.
func (d *Pair) all() (operations []int) {
	d.Helper()
	data, err := os.ReadFile(d.operations)
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
		operations = append(operations, pid)
	}
	return operations
}

// cut cuts the first node off and returns how many operations it did after its successor's first. late is the longest
// time that a due goroutine had to wait meanwhile.
func (d *Pair) cut() (overlap int, late time.Duration) {
	d.Helper()
	url, err := d.proxy.URL(d.dsn)
	require.NoError(d, err)
	d.join(d, url)
	await.Until(d, await.Patience, func() bool { return len(d.all()) > 0 }, "the first node's command runs")
	first := d.all()[0]
	d.join(d, d.dsn)
	look := pgtest.Connect(d, d.dsn)
	clitest.RequireWaiting(d.T, look) // the second node
	lateness := measureLateness()
	d.proxy.Set(faultproxy.Hold)
	await.Until(d, await.Patience, func() bool {
		operations := d.all()
		return operations[len(operations)-1] != first && syscall.Kill(first, 0) == syscall.ESRCH
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

// measureLateness measures, until worst is called, how long a due timer waits for a processor.
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

// RequireNone cuts nodes off until an attempt in which the machine was not too busy for a verdict.
func RequireNone(t *testing.T, join func(d *Pair, dsn string)) {
	t.Helper()
	for range 5 {
		overlap, late := 0, time.Duration(0)
		t.Run("cut", func(t *testing.T) { overlap, late = New(t, join).cut() })
		if overlap > 0 && late > renew.Margin(Lease)/4 { // the kernel also had to deliver signals meanwhile
			t.Logf("%d operations overlap, and this machine was too busy to run what was due for %v: beginning again", overlap, late)
			continue
		}
		assert.Zero(t, overlap, "operations of the old command after the first of the new one; timers were late by %v", late)
		return
	}
	require.Fail(t, "this machine was too busy in each of five attempts: nothing is known")
}

// RequireSome is the control: with the times that did not fit the commands overlap.
func RequireSome(t *testing.T, join func(d *Pair, dsn string)) {
	t.Helper()
	d := New(t, join)
	d.Old = true
	operations, _ := d.cut()
	t.Log(operations, "operations of the old command after the first of the new one")
	assert.NotZero(t, operations)
}
