package shardscmd_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/cmd/internal/shardscmd"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/shardstest"
)

// start runs a node on a backend until stop is called, or the test ends.
func start(t *testing.T, b driver.Backend, identity string, names ...string) (stop func()) {
	t.Helper()
	node, err := shards.New(shards.Config{
		Name: "tenants", Backend: b, Identity: identity, Shards: names,
		LeaseDuration: 10 * time.Second, LookInterval: 20 * time.Millisecond, MinStay: -1,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- node.Run(ctx, func(ctx context.Context, _ shards.Shard) error { <-ctx.Done(); return nil })
	}()
	stop = func() {
		cancel()
		if ended != nil {
			assert.NoError(t, <-ended)
			ended = nil
		}
	}
	t.Cleanup(stop)
	return stop
}

// run runs a command on a store in memory.
func run(t *testing.T, b *shardstest.Backend, words string) (stdout string, code int, says string) {
	t.Helper()
	var out bytes.Buffer
	app := program.New()
	app.Stdout, app.Getenv = &out, func(string) string { return "" }
	cmd := shardscmd.NewInMemory(app, b)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append(strings.Fields(words), "-q"))
	cmd.SetOut(&out)
	err := cmd.ExecuteContext(t.Context())
	if err != nil {
		says = err.Error()
	}
	return out.String(), program.Code(err), says
}

// settled waits until all is owned, by these nodes.
func settled(t *testing.T, b *shardstest.Backend, counts map[string]int) {
	t.Helper()
	var stdout string
	await.Until(t, await.Soon, func() bool {
		out, code, _ := run(t, b, "ls tenants -o json")
		stdout = out
		owned := map[string]int{}
		for _, s := range clitest.Decode[listing](t, out).Shards {
			owned[s.Owner]++
		}
		return code == 0 && assert.ObjectsAreEqual(counts, owned)
	}, func() string { return stdout })
}

type listing struct {
	Group   string `json:"group"`
	Certain bool   `json:"certain"`
	Total   int    `json:"total"`
	Owned   int    `json:"owned"`
	Unowned int    `json:"unowned"`
	Nodes   []struct {
		Identity string `json:"identity"`
		Owned    int    `json:"owned"`
		Fair     int    `json:"fair"`
		Draining bool   `json:"draining"`
		Drained  bool   `json:"drained"`
		Away     bool   `json:"away"`
	} `json:"nodes"`
	Shards []struct {
		Shard        string `json:"shard"`
		Owner        string `json:"owner"`
		Term         string `json:"term"`
		FencingToken uint64 `json:"fencing_token"`
		PinnedTo     string `json:"pinned_to"`
	} `json:"shards"`
	Pins map[string]string `json:"pins"`
}

func TestLsSaysWhoOwnsWhatAndTheFairParts(t *testing.T) {
	t.Parallel()
	store := shardstest.NewStore()
	b := store.Backend()
	for _, identity := range []string{"web-2", "web-1"} {
		start(t, store.Backend(), identity, "eu-1", "eu-2", "us-1", "us-2")
	}
	settled(t, b, map[string]int{"web-1": 2, "web-2": 2})
	stdout, code, says := run(t, b, "ls tenants")
	assert.Zero(t, code, says)
	assert.Regexp(t, `^NODE +WEIGHT +OWNED +FAIR +STATE
web-1 +100 +2 +2 +-
web-2 +100 +2 +2 +-

SHARD +OWNER +TERM +PINNED TO
eu-1 +web-[12] +0\.\d+ +-
eu-2 +web-[12] +0\.\d+ +-
us-1 +web-[12] +0\.\d+ +-
us-2 +web-[12] +0\.\d+ +-
$`, stdout)
	stdout, _, _ = run(t, b, "ls tenants -o json")
	l := clitest.Decode[listing](t, stdout)
	assert.Equal(t, "tenants", l.Group)
	assert.True(t, l.Certain)
	assert.Equal(t, []int{4, 4, 0}, []int{l.Total, l.Owned, l.Unowned})
	assert.NotZero(t, l.Shards[0].FencingToken)
	stdout, _, _ = run(t, b, "ls tenants -o jsonl")
	assert.Equal(t, 4, strings.Count(stdout, "\n"), "a line for each shard")
	stdout, _, _ = run(t, b, "ls tenants -o jsonl --nodes")
	assert.Equal(t, 2, strings.Count(stdout, "\n"), "a line for each node")
}

func TestLsChoosesByNodeByPrefixAndWhatNobodyOwns(t *testing.T) {
	t.Parallel()
	store := shardstest.NewStore()
	b := store.Backend()
	stop := start(t, store.Backend(), "web-1", "eu-1", "us-1", "us-2")
	require.NoError(t, b.Pin(t.Context(), "us-1", "web-9"))
	settled(t, b, map[string]int{"web-1": 3})
	chosen := func(flags string) (names []string) {
		stdout, _, says := run(t, b, "ls tenants -o json "+flags)
		for _, s := range clitest.Decode[listing](t, stdout).Shards {
			names = append(names, s.Shard)
		}
		require.NotContains(t, says, "unknown flag")
		return names
	}
	assert.Equal(t, []string{"us-1", "us-2"}, chosen("--prefix us-"))
	assert.Equal(t, []string{"us-1"}, chosen("--node web-9"), "what is pinned to it")
	assert.Equal(t, []string{"us-1", "us-2"}, chosen("--node web-1 --prefix us-"))
	assert.Empty(t, chosen("--unowned"))
	assert.Empty(t, chosen("--nodes"))
	stdout, _, _ := run(t, b, "ls tenants --prefix us-")
	assert.Contains(t, stdout, "2 of 3 shards are shown")
	_, code, says := run(t, b, "ls tenants --node web-7")
	assert.Equal(t, 3, code)
	assert.Equal(t, `there is no node "web-7" in group tenants: it has web-1, web-9`, says)

	stop()
	assert.Equal(t, []string{"us-1"}, chosen("--unowned --node web-9"))
	assert.Len(t, chosen("--unowned"), 3)
}

func TestLsEndsWith3IfNotAllIsOwned(t *testing.T) {
	t.Parallel()
	store := shardstest.NewStore()
	b := store.Backend()
	_, code, says := run(t, b, "ls tenants")
	assert.Equal(t, 3, code)
	assert.Contains(t, says, `nothing is known of a group "tenants" in memory`)

	stop := start(t, store.Backend(), "web-1", "a", "b", "c")
	settled(t, b, map[string]int{"web-1": 3})
	_, code, says = run(t, b, "ls tenants")
	assert.Zero(t, code, says)

	other := start(t, store.Backend(), "web-2", "a", "b", "c", "new") // with another list
	await.Until(t, await.Soon, func() bool { return store.Owners()["new"] != "" }, "new is not owned")
	allOwned := func(when string) { // nobody owns a shard while it moves
		t.Helper()
		await.Until(t, await.Soon, func() bool {
			_, code, says = run(t, b, "ls tenants")
			return code == 0
		}, func() string { return when + ": " + says })
	}
	allOwned("a deploy is no alarm while all is owned")
	other()
	allOwned("new is in no list any more")

	stop()
	stdout, code, says := run(t, b, "ls tenants")
	assert.Equal(t, 3, code)
	assert.Contains(t, says, "no node takes part: nobody owns 4 of 4 shards")
	assert.Regexp(t, `(?m)^a +nobody +0\.\d+ +-$`, stdout)
}

func TestADrainedNodeGivesUpAllAndIsLetBackIn(t *testing.T) {
	t.Parallel()
	store := shardstest.NewStore()
	b := store.Backend()
	for _, identity := range []string{"web-1", "web-2"} {
		start(t, store.Backend(), identity, "a", "b", "c", "d")
	}
	settled(t, b, map[string]int{"web-1": 2, "web-2": 2})

	_, code, says := run(t, b, "drain tenants web-3")
	assert.Equal(t, 3, code)
	assert.Equal(t, `there is no node "web-3" in group tenants: it has web-1, web-2`, says)
	stdout, code, says := run(t, b, "drain tenants web-1 --wait 1m")
	assert.Zero(t, code, says)
	assert.Equal(t, "web-1 of tenants is drained: it owns no shard\n", stdout)
	settled(t, b, map[string]int{"web-2": 4})
	stdout, _, _ = run(t, b, "ls tenants --nodes")
	assert.Regexp(t, `web-1 +100 +0 +0 +draining\nweb-2 +100 +4 +4 +-\n$`, stdout)

	stdout, code, says = run(t, b, "drain tenants web-2 --wait 20ms")
	assert.Equal(t, 75, code)
	assert.Equal(t, "web-2 still owns 4 shards after 20ms", says, "there is nobody to take them")
	assert.Empty(t, stdout)
	for _, identity := range []string{"web-1", "web-2"} {
		stdout, code, says = run(t, b, "drain tenants --undo "+identity)
		assert.Zero(t, code, says)
		assert.Equal(t, identity+" of tenants may claim shards again\n", stdout)
	}
	settled(t, b, map[string]int{"web-1": 2, "web-2": 2})
}

func TestANodeThatIsAwayIsDrainedWithForce(t *testing.T) {
	t.Parallel()
	store := shardstest.NewStore()
	b := store.Backend()
	start(t, store.Backend(), "web-1", "a")
	settled(t, b, map[string]int{"web-1": 1})
	stdout, code, says := run(t, b, "drain tenants web-2 --force -o json")
	assert.Zero(t, code, says)
	assert.JSONEq(t, `{"group":"tenants","node":"web-2","drained":true,"owned":0}`, stdout)
	stdout, _, _ = run(t, b, "ls tenants --nodes")
	assert.Regexp(t, `(?m)^web-2 +- +0 +- +away, drained$`, stdout)
	_, code, says = run(t, b, "drain tenants web-2 --undo")
	assert.Zero(t, code, says, "it is known by what was said of it")
	stdout, _, _ = run(t, b, "ls tenants --nodes")
	assert.NotContains(t, stdout, "web-2")
	_, code, _ = run(t, b, "drain tenants web-2 --undo")
	assert.Equal(t, 3, code)
}

func TestAPinnedShardMovesToItsNodeAndStays(t *testing.T) {
	t.Parallel()
	store := shardstest.NewStore()
	b := store.Backend()
	for _, identity := range []string{"web-1", "web-2"} {
		start(t, store.Backend(), identity, "a", "b")
	}
	settled(t, b, map[string]int{"web-1": 1, "web-2": 1})
	to := map[string]string{"web-1": "web-2", "web-2": "web-1"}[store.Owners()["a"]]
	shard := func() (token uint64) {
		stdout, _, _ := run(t, b, "ls tenants -o json --prefix a")
		return clitest.Decode[listing](t, stdout).Shards[0].FencingToken
	}
	before := shard() // it may have moved to the second node before

	stdout, code, says := run(t, b, "pin tenants a --wait 1m "+to)
	assert.Zero(t, code, says)
	assert.Equal(t, "a of tenants is pinned to "+to+", which owns it\n", stdout)
	stdout, _, _ = run(t, b, "ls tenants --prefix a")
	assert.Regexp(t, `(?m)^a +`+to+` +0\.\d+ +`+to+`$`, stdout)
	assert.Equal(t, before+1, shard(), "one move")
	for words, want := range map[string]string{
		"pin tenants z web-1":    `there is no shard "z" in group tenants: it has a, b`,
		"pin tenants a web-7":    `there is no node "web-7" in group tenants: it has web-1, web-2`,
		"pin tenants z --remove": `there is no shard "z" in group tenants`,
		"pin tenants b --remove": "b of tenants is not pinned",
	} {
		_, code, says := run(t, b, words)
		assert.Equal(t, 3, code, words)
		assert.Contains(t, says, want)
	}
	assert.Equal(t, map[string]string{"a": to}, pins(t, b), "what was refused changed nothing")

	stdout, code, says = run(t, b, "pin tenants z web-7 --force -o json")
	assert.Zero(t, code, says)
	assert.JSONEq(t, `{"group":"tenants","shard":"z","node":"web-7"}`, stdout)
	stdout, _, _ = run(t, b, "ls tenants")
	assert.Contains(t, stdout, "z is pinned to web-7, and no shard that is known\n")
	for _, name := range []string{"a", "z"} {
		stdout, code, says = run(t, b, "pin tenants --remove "+name)
		assert.Zero(t, code, says)
		assert.Equal(t, name+" of tenants is not pinned any more\n", stdout)
	}
	assert.Empty(t, pins(t, b))
}

func pins(t *testing.T, b *shardstest.Backend) map[string]string {
	t.Helper()
	stdout, _, _ := run(t, b, "ls tenants -o json")
	return clitest.Decode[listing](t, stdout).Pins
}

func TestAPinThatIsNotCarriedOutInTimeEndsWith75(t *testing.T) {
	t.Parallel()
	store := shardstest.NewStore()
	b := store.Backend()
	start(t, store.Backend(), "web-1", "a")
	settled(t, b, map[string]int{"web-1": 1})
	require.NoError(t, b.Drain(t.Context(), "web-2", true))
	_, code, says := run(t, b, "pin tenants a web-2 --wait 20ms")
	assert.Equal(t, 75, code)
	assert.Equal(t, "a is owned by web-1, and not by web-2 after 20ms", says)
}

func TestAStoreThatFailsEndsWith69(t *testing.T) {
	t.Parallel()
	b := shardstest.NewStore().Backend()
	b.SetUnavailable(errors.New("the network is down"))
	for _, words := range []string{"ls tenants", "drain tenants a", "pin tenants a b", "pin tenants a --remove"} {
		_, code, says := run(t, b, words)
		assert.Equal(t, 69, code, words)
		assert.Contains(t, says, "the network is down")
	}
}

// A noticed error tells when somebody has read it.
type noticed struct{ read func() }

func (e noticed) Error() string {
	e.read()
	return "the session has ended"
}

func TestADrainWaitsOnWhenItsSessionEnds(t *testing.T) {
	t.Parallel()
	store := shardstest.NewStore()
	b := store.Backend()
	start(t, store.Backend(), "web-1", "a")
	settled(t, b, map[string]int{"web-1": 1})
	code := make(chan int, 1)
	go func() {
		_, c, _ := run(t, b, "drain tenants web-1 --wait 1m")
		code <- c
	}()
	await.Until(t, await.Soon, func() bool {
		o, err := store.Backend().Observe(t.Context())
		return err == nil && len(o.Drained) == 1
	}, "the order was not given")
	failed := make(chan struct{})
	b.SetUnavailable(noticed{sync.OnceFunc(func() { close(failed) })})
	<-failed
	b.SetUnavailable(nil)
	start(t, store.Backend(), "web-2", "a")
	assert.Zero(t, <-code)
	assert.Equal(t, "web-2", store.Owners()["a"])
}
