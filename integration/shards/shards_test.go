//go:build integration

package shards

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/internal/test/electiontest"
	"github.com/pglatch/pglatch/internal/test/ledgertest"
	"github.com/pglatch/pglatch/internal/test/netns"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/replay"
	"github.com/pglatch/pglatch/internal/test/tally"
	"github.com/pglatch/pglatch/internal/test/trace"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// perGame is how many rounds the same nodes play.
const perGame = 10

// Whatever happens to nodes, no write of an ended term commits once another has begun, nobody works
// on a shard in an ended term for longer than is stated, each is owned again soon, and evenly.
func TestEachShardHasOneOwnerWhateverHappens(t *testing.T) {
	g := newTracedGame(t, replay.Start(t, "shards"))
	var bag []fault
	for rounds, nodes := electiontest.Rounds(t), 3; rounds > 0; rounds, nodes = rounds-perGame, 3+g.Random.IntN(7) {
		g.open(nodes, func(j *electiontest.Job) { j.Stubborn = j.Node%3 > 0 })
		for range min(perGame, rounds) {
			if len(bag) == 0 {
				for _, i := range g.Random.Perm(len(g.faults)) {
					bag = append(bag, g.faults[i])
				}
			}
			g.round(bag[0])
			bag = bag[1:]
		}
		g.Close()
	}
	g.summary()
	g.requireLegal()
	g.run.RequireLegal(trace.Acquired, trace.Released, trace.Lost, trace.Works, trace.Rests, trace.Commit, trace.Fault)
	ledgertest.RequireDefied(t, g.Count)
}

// The control: without guards, and with work that does not look at its context, all checkers find what
// they look for.
func TestWithoutGuardsTermsOfShardsOutliveTheirEnds(t *testing.T) {
	g := newTracedGame(t, replay.Start(t, "shards"))
	g.open(3, func(j *electiontest.Job) {
		j.Stubborn, j.Reckless = true, true
		j.Settings[settingNodes] = "1" // more transactions
	})
	for round := 0; len(g.Late()) == 0 || !g.Illegal(t) || g.run.Check() == nil; round++ {
		require.Less(t, round, 20, "nothing went wrong: the checkers see nothing")
		g.round(g.faultNamed("cut off"))
	}
	t.Logf("control: %d operations too late, such as: %s", len(g.Late()), g.Late()[0])
	tally.Control(t, "%d operations too late, and stale writes committed", len(g.Late()))
	g.run.RequireRefused()
	g.Close()
}

// The control: where nodes own what they believe to be theirs, two own one shard.
func TestNodesThatTrustMembershipInsteadOfLocksBothOwnAShard(t *testing.T) {
	g := newGame(t)
	g.start(3, func(j *electiontest.Job) { j.Settings[settingTrusting] = "true" }) // which need not settle
	began := time.Now()
	for restarted := began; ; electiontest.Pause(t.Context(), 10*time.Millisecond) {
		late, shared := g.Terms.Drain()
		if len(late)+len(shared) > 0 {
			t.Logf("control: on a shard of another: %v, %v", late, shared)
			tally.Control(t, "%d operations on a shard of another node", len(late)+len(shared))
			return
		}
		require.Less(t, time.Since(began), patience, "nobody owns what another does: the checkers see nothing")
		if time.Since(restarted) > 2*lease {
			g.Nodes[0].Stop()
			g.Nodes[0].Start()
			restarted = time.Now()
		}
	}
}

// The network drops all packets of a node in both directions, its transactions included. Nobody receives an error.
func TestShardsOfANodeInABlackHoleAreOwnedAgain(t *testing.T) {
	n := netns.New(t)
	server, local := n.StartServer(t)
	g := newGameOn(t, server, local, nil, func(node *electiontest.Node) {
		if node.Job.Node > 0 {
			return
		}
		node.Prefix = []string{"ip", "netns", "exec", n.Client}
		node.Job.Settings[settingDSN], node.Job.Settings[settingWork] = server.DSN(""), server.DSN("")
		node.Job.Observer = "unixgram " + newRelay(t, node.Job.Observer)
	})
	g.open(3, func(*electiontest.Job) {})
	cutOff := g.faultNamed("cut off")
	cutOff.victim = g.Nodes[0]
	cutOff.Strike = by(func() func() {
		n.Forward(t, false)
		return func() { n.Forward(t, true) }
	})
	for range 2 {
		g.round(cutOff)
	}
	g.Close()
	g.requireLegal()
}

// newRelay gives the datagrams of nodes in another namespace, which see the same files, to the observer.
func newRelay(t *testing.T, observer string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "observer")
	from, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	require.NoError(t, err)
	to, err := net.Dial("udp4", strings.TrimPrefix(observer, "udp4 "))
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, judge.OperationSize)
		for {
			if _, err := from.Read(b); err != nil {
				return // closed
			}
			_, _ = to.Write(b)
		}
	}()
	t.Cleanup(func() {
		_ = from.Close()
		<-done
		_ = to.Close()
	})
	return path
}

// A trusting backend is the control: it believes what it sees of members, and what the plan makes of it,
// and does not ask the locks.
type trusting struct{ driver.Backend }

func (b trusting) Open(ctx context.Context, self driver.Member, ttl time.Duration) (driver.Session, error) {
	s, err := b.Backend.Open(ctx, self, ttl)
	if err != nil {
		return nil, err
	}
	return trustingSession{s}, nil
}

type trustingSession struct{ driver.Session }

// Claim owns whatever it is asked to.
func (s trustingSession) Claim(ctx context.Context, names []string) ([]driver.Grant, error) {
	grants, err := s.Session.Claim(ctx, names)
	for _, name := range names {
		if err == nil && !slices.ContainsFunc(grants, func(g driver.Grant) bool { return g.Name == name }) {
			grants = append(grants, driver.Grant{Name: name, Term: driver.Term{Era: 1, N: uint64(time.Now().UnixMilli())}})
		}
	}
	return grants, err
}

// Look does not say who owns what.
func (s trustingSession) Look(ctx context.Context, known uint64) (driver.View, error) {
	v, err := s.Session.Look(ctx, known)
	v.Owners = nil
	return v, err
}

// The times of all nodes, on a machine that is fast enough for them: see game.open.
const (
	lease    = electiontest.Lease
	look     = lease / 5 // what 0 means
	stay     = lease / 2
	patience = electiontest.Patience

	settleAtMost = 5 // so many leases may pass before nodes own all shards evenly

	// A claim, by one that looks because nothing told it to.
	attempt = 2*look + electiontest.RenewTimeout
)

// A pace is the factor of all times of nodes.
type pace int

// slowest is the largest pace that a game tries.
const slowest pace = 8

func (p pace) of(d time.Duration) time.Duration { return time.Duration(p) * d }

// The shards of a list, and how many more the next list of a deploy has, and the last has not.
const (
	listed  = 300
	shifted = 20
)

var tenants = namespace.Must(9, "tenant")

func TestMain(m *testing.M) {
	electiontest.Main(map[string]electiontest.Role{"owner": own})
	pgtest.Main(m)
}

// newBackend is what a node stands on.
func newBackend(dsn string) (driver.Backend, error) {
	return postgres.New(postgres.Config{DSN: dsn, Namespace: tenants, CreateTable: true})
}

// inTx runs fn in a transaction that is guarded by the term of ctx.
func inTx(ctx context.Context, pool *pgxpool.Pool, fn func(context.Context, pgx.Tx) error) error {
	return postgres.InTx(ctx, pool, fn)
}

// shardName and shardOf are how shards are called.
func shardName(i int) string { return fmt.Sprintf("tenant-%03d", i) }

func shardOf(name string) (i int) {
	if _, err := fmt.Sscanf(name, "tenant-%d", &i); err != nil {
		panic("BUG: " + err.Error())
	}
	return i
}

// listFrom returns the names of the list that begins with a shard.
func listFrom(first int) []string {
	names := make([]string, listed)
	for i := range names {
		names[i] = shardName(first + i)
	}
	return names
}
