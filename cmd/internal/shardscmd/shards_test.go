package shardscmd_test

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/cli"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader/shards"
	"github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// A bench is a database with the group tenant=7.
type bench struct {
	*postgres.Backend // which takes no part
	t                 *testing.T
	dsn               string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, dsn: pgtest.DSN(t)}
	b.Backend = b.backend()
	require.NoError(t, b.Migrate(t.Context()))
	return b
}

func (b *bench) backend() *postgres.Backend {
	b.t.Helper()
	backend, err := postgres.New(postgres.Config{DSN: b.dsn, Namespace: namespace.Must(7, "tenant")})
	require.NoError(b.t, err)
	return backend
}

// start runs a node until stop is called, or the test ends.
func (b *bench) start(identity string, names ...string) (stop func()) {
	b.t.Helper()
	node, err := shards.New(shards.Config{
		Name: "tenants", Backend: b.backend(), Identity: identity, Shards: names,
		LeaseDuration: 10 * time.Second, LookInterval: 20 * time.Millisecond, MinStay: -1,
	})
	require.NoError(b.t, err)
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- node.Run(ctx, func(ctx context.Context, _ shards.Shard) error { <-ctx.Done(); return nil })
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		assert.NoError(b.t, <-ended)
	})
	b.t.Cleanup(stop)
	return stop
}

// run runs a command, whose errors it returns without the name of the program.
func (b *bench) run(words string) (stdout string, code int, says string) {
	b.t.Helper()
	stdout, says, code = clitest.Run(b.t, clitest.At(b.dsn, "PGLATCH_NAMESPACES=tenant=7"), append([]string{"shards"}, append(strings.Fields(words), "-q")...)...)
	return stdout, code, strings.TrimSuffix(strings.TrimPrefix(says, "pglatch: "), "\n")
}

// owners returns the owner of each shard.
func (b *bench) owners() map[string]string {
	b.t.Helper()
	stdout, _, _ := b.run("ls tenant -o json")
	owners := map[string]string{}
	for _, s := range clitest.Decode[listing](b.t, stdout).Shards {
		owners[s.Shard] = s.Owner
	}
	return owners
}

// settled waits until all is owned, by these nodes.
func (b *bench) settled(counts map[string]int) {
	b.t.Helper()
	var stdout string
	await.Until(b.t, await.Soon, func() bool {
		out, code, _ := b.run("ls tenant -o json")
		stdout = out
		owned := map[string]int{}
		for _, s := range clitest.Decode[listing](b.t, out).Shards {
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
	b := newBench(t)
	for _, identity := range []string{"web-2", "web-1"} {
		b.start(identity, "eu-1", "eu-2", "us-1", "us-2")
	}
	b.settled(map[string]int{"web-1": 2, "web-2": 2})
	stdout, code, says := b.run("ls tenant")
	assert.Zero(t, code, says)
	assert.Regexp(t, `^NODE +WEIGHT +OWNED +FAIR +STATE
web-1 +100 +2 +2 +-
web-2 +100 +2 +2 +-

SHARD +OWNER +TERM +PINNED TO
eu-1 +web-[12] +1\.\d+ +-
eu-2 +web-[12] +1\.\d+ +-
us-1 +web-[12] +1\.\d+ +-
us-2 +web-[12] +1\.\d+ +-
$`, stdout)
	stdout, _, _ = b.run("ls tenant -o json")
	l := clitest.Decode[listing](t, stdout)
	assert.Equal(t, "tenant", l.Group)
	assert.True(t, l.Certain)
	assert.Equal(t, []int{4, 4, 0}, []int{l.Total, l.Owned, l.Unowned})
	assert.NotZero(t, l.Shards[0].FencingToken)
	stdout, _, _ = b.run("ls tenant -o jsonl")
	assert.Equal(t, 4, strings.Count(stdout, "\n"), "a line for each shard")
	stdout, _, _ = b.run("ls tenant -o jsonl --nodes")
	assert.Equal(t, 2, strings.Count(stdout, "\n"), "a line for each node")
}

func TestLsChoosesByNodeByPrefixAndWhatNobodyOwns(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	stop := b.start("web-1", "eu-1", "us-1", "us-2")
	require.NoError(t, b.Pin(t.Context(), "us-1", "web-9"))
	b.settled(map[string]int{"web-1": 3})
	chosen := func(flags string) (names []string) {
		stdout, _, says := b.run("ls tenant -o json " + flags)
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
	stdout, _, _ := b.run("ls tenant --prefix us-")
	assert.Contains(t, stdout, "2 of 3 shards are shown")
	_, code, says := b.run("ls tenant --node web-7")
	assert.Equal(t, 3, code)
	assert.Equal(t, `there is no node "web-7" in group tenant: it has web-1, web-9`, says)

	stop()
	assert.Equal(t, []string{"us-1"}, chosen("--unowned --node web-9"))
	assert.Len(t, chosen("--unowned"), 3)
}

func TestLsEndsWith3IfNotAllIsOwned(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	_, code, says := b.run("ls tenant")
	assert.Equal(t, 3, code)
	assert.Contains(t, says, `nothing is known of a group "tenant" in database`)

	stop := b.start("web-1", "a", "b", "c")
	b.settled(map[string]int{"web-1": 3})
	_, code, says = b.run("ls tenant")
	assert.Zero(t, code, says)

	other := b.start("web-2", "a", "b", "c", "new") // with another list
	await.Until(t, await.Soon, func() bool { return b.owners()["new"] != "" }, "new is not owned")
	allOwned := func(when string) { // nobody owns a shard while it moves
		t.Helper()
		await.Until(t, await.Soon, func() bool {
			_, code, says = b.run("ls tenant")
			return code == 0
		}, func() string { return when + ": " + says })
	}
	allOwned("a deploy is no alarm while all is owned")
	other()
	allOwned("new is in no list any more")

	stop()
	stdout, code, says := b.run("ls tenant")
	assert.Equal(t, 3, code)
	assert.Contains(t, says, "no node takes part: nobody owns 4 of 4 shards")
	assert.Regexp(t, `(?m)^a +nobody +1\.\d+ +-$`, stdout)
}

func TestADrainedNodeGivesUpAllAndIsLetBackIn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, identity := range []string{"web-1", "web-2"} {
		b.start(identity, "a", "b", "c", "d")
	}
	b.settled(map[string]int{"web-1": 2, "web-2": 2})

	_, code, says := b.run("drain tenant web-3")
	assert.Equal(t, 3, code)
	assert.Equal(t, `there is no node "web-3" in group tenant: it has web-1, web-2`, says)
	stdout, code, says := b.run("drain tenant web-1 --wait 1m")
	assert.Zero(t, code, says)
	assert.Equal(t, "web-1 of tenant is drained: it owns no shard\n", stdout)
	b.settled(map[string]int{"web-2": 4})
	stdout, _, _ = b.run("ls tenant --nodes")
	assert.Regexp(t, `web-1 +100 +0 +0 +draining\nweb-2 +100 +4 +4 +-\n$`, stdout)

	stdout, code, says = b.run("drain tenant web-2 --wait 20ms")
	assert.Equal(t, 75, code)
	assert.Equal(t, "web-2 still owns 4 shards after 20ms", says, "there is nobody to take them")
	assert.Empty(t, stdout)
	for _, identity := range []string{"web-1", "web-2"} {
		stdout, code, says = b.run("drain tenant --undo " + identity)
		assert.Zero(t, code, says)
		assert.Equal(t, identity+" of tenant may claim shards again\n", stdout)
	}
	b.settled(map[string]int{"web-1": 2, "web-2": 2})
}

func TestANodeThatIsAwayIsDrainedWithForce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start("web-1", "a")
	b.settled(map[string]int{"web-1": 1})
	stdout, code, says := b.run("drain tenant web-2 --force -o json")
	assert.Zero(t, code, says)
	assert.JSONEq(t, `{"group":"tenant","node":"web-2","drained":true,"owned":0}`, stdout)
	stdout, _, _ = b.run("ls tenant --nodes")
	assert.Regexp(t, `(?m)^web-2 +- +0 +- +away, drained$`, stdout)
	_, code, says = b.run("drain tenant web-2 --undo")
	assert.Zero(t, code, says, "it is known by what was said of it")
	stdout, _, _ = b.run("ls tenant --nodes")
	assert.NotContains(t, stdout, "web-2")
	_, code, _ = b.run("drain tenant web-2 --undo")
	assert.Equal(t, 3, code)
}

func TestAPinnedShardMovesToItsNodeAndStays(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, identity := range []string{"web-1", "web-2"} {
		b.start(identity, "a", "b")
	}
	b.settled(map[string]int{"web-1": 1, "web-2": 1})
	to := map[string]string{"web-1": "web-2", "web-2": "web-1"}[b.owners()["a"]]
	shard := func() (token uint64) {
		stdout, _, _ := b.run("ls tenant -o json --prefix a")
		return clitest.Decode[listing](t, stdout).Shards[0].FencingToken
	}
	before := shard() // it may have moved to the second node before

	stdout, code, says := b.run("pin tenant a --wait 1m " + to)
	assert.Zero(t, code, says)
	assert.Equal(t, "a of tenant is pinned to "+to+", which owns it\n", stdout)
	stdout, _, _ = b.run("ls tenant --prefix a")
	assert.Regexp(t, `(?m)^a +`+to+` +1\.\d+ +`+to+`$`, stdout)
	assert.Equal(t, before+1, shard(), "one move")
	for words, want := range map[string]string{
		"pin tenant z web-1":    `there is no shard "z" in group tenant: it has a, b`,
		"pin tenant a web-7":    `there is no node "web-7" in group tenant: it has web-1, web-2`,
		"pin tenant z --remove": `there is no shard "z" in group tenant`,
		"pin tenant b --remove": "b of tenant is not pinned",
	} {
		_, code, says := b.run(words)
		assert.Equal(t, 3, code, words)
		assert.Contains(t, says, want)
	}
	assert.Equal(t, map[string]string{"a": to}, b.pins(), "what was refused changed nothing")

	stdout, code, says = b.run("pin tenant z web-7 --force -o json")
	assert.Zero(t, code, says)
	assert.JSONEq(t, `{"group":"tenant","shard":"z","node":"web-7"}`, stdout)
	stdout, _, _ = b.run("ls tenant")
	assert.Contains(t, stdout, "z is pinned to web-7, and no shard that is known\n")
	for _, name := range []string{"a", "z"} {
		stdout, code, says = b.run("pin tenant --remove " + name)
		assert.Zero(t, code, says)
		assert.Equal(t, name+" of tenant is not pinned any more\n", stdout)
	}
	assert.Empty(t, b.pins())
}

func (b *bench) pins() map[string]string {
	b.t.Helper()
	stdout, _, _ := b.run("ls tenant -o json")
	return clitest.Decode[listing](b.t, stdout).Pins
}

func TestAPinThatIsNotCarriedOutInTimeEndsWith75(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start("web-1", "a")
	b.settled(map[string]int{"web-1": 1})
	require.NoError(t, b.Drain(t.Context(), "web-2", true))
	_, code, says := b.run("pin tenant a web-2 --wait 20ms")
	assert.Equal(t, 75, code)
	assert.Equal(t, "a is owned by web-1, and not by web-2 after 20ms", says)
}

func TestAStoreThatFailsEndsWith69(t *testing.T) {
	t.Parallel()
	for _, words := range []string{"ls tenant=7", "drain tenant=7 a", "pin tenant=7 a b", "pin tenant=7 a --remove"} {
		_, stderr, code := clitest.Run(t, clitest.At(clitest.Nowhere), append([]string{"shards"}, strings.Fields(words)...)...)
		assert.Equal(t, 69, code, "%s: %s", words, stderr)
	}
}

func TestADrainWaitsOnWhenItsSessionEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.start("web-1", "a")
	b.settled(map[string]int{"web-1": 1})
	server, err := url.Parse(b.dsn)
	require.NoError(t, err)
	proxy, err := faultproxy.New(t.Context(), server.Host)
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	through, err := proxy.URL(b.dsn)
	require.NoError(t, err)
	drain := clitest.Start(t, clitest.At(through), "shards", "drain", "tenant=7", "web-1", "--wait", "1m")
	await.Until(t, await.Soon, func() bool {
		o, err := b.Observe(t.Context())
		return err == nil && len(o.Drained) == 1
	}, "the order was not given")
	proxy.Set(faultproxy.Hold) // the next look waits, and fails
	await.Until(t, await.Soon, func() bool {
		proxy.Reset()
		return strings.Contains(drain.Stderr.String(), "looking failed: it is tried again")
	}, drain.Stderr.String)
	proxy.Set(faultproxy.Pass)
	b.start("web-2", "a")
	assert.Zero(t, drain.Wait(), drain.Stderr.String())
	assert.Equal(t, "web-2", b.owners()["a"])
}

func TestMain(m *testing.M) { clitest.Main(m, func() int { return cli.Main(cli.Options{}) }) }

func TestTheShellOffersNodesAndShards(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for _, identity := range []string{"web-1", "web-2"} {
		b.start(identity, "a", "b", "c", "d")
	}
	b.settled(map[string]int{"web-1": 2, "web-2": 2})
	for last, want := range map[string][]string{"ls --node": {"web-1", "web-2"}, "drain": {"web-1", "web-2"}, "pin": {"a", "b", "c", "d"}} {
		name, flag, _ := strings.Cut(last, " ")
		words := []string{"__complete", "shards", name, "tenant=7"}
		if flag != "" {
			words = append(words, flag)
		}
		var offered []string
		await.Until(t, await.Soon, func() bool { // who presses TAB is not kept waiting for a busy server
			stdout, stderr, code := clitest.Run(t, clitest.At(b.dsn), append(words, "")...)
			require.Zero(t, code, stderr)
			offered = nil
			for line := range strings.Lines(stdout) {
				if word, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); !strings.HasPrefix(line, ":") {
					offered = append(offered, word)
				}
			}
			return slices.Equal(want, offered)
		}, func() string { return fmt.Sprint(last, " offers ", offered) })
	}
}

func TestAGroupOfADatabaseIsANamespaceWhoseNumberIsKnown(t *testing.T) {
	t.Parallel()
	env := clitest.At(pgtest.DSN(t))
	for group, want := range map[string]string{
		"tenant":   "say tenant=NUMBER",
		"tenant=x": `GROUP is "tenant=x": use name=number`,
		"tenant=0": "1 to 32767",
	} {
		_, stderr, code := clitest.Run(t, env, "shards", "ls", group)
		assert.Equal(t, 64, code, group)
		assert.Contains(t, stderr, want)
	}
	_, stderr, code := clitest.Run(t, env, "shards", "ls", "tenant=7")
	assert.Equal(t, 3, code, "as for a group of which nothing is known")
	assert.Contains(t, stderr, " has no table public.pglatch_shard, or none of those beside it: nodes with Config.CreateTable make them, or postgres.Schema of leader/shards in a migration; "+
		"if nodes run, check the address of the database, and --table\n")
	assert.NotContains(t, stderr, "SQLSTATE")
	_, stderr, code = clitest.Run(t, env, "shards", "drain", "tenant=7", "a")
	assert.Equal(t, 3, code, stderr)
	_, stderr, code = clitest.Run(t, clitest.At(clitest.Nowhere), "shards", "drain", "tenant=7", "a")
	assert.Equal(t, 69, code, stderr)
}
