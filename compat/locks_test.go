//go:build integration

package compat_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/lease"
)

// modes are numbers of locks per connection.
var modes = []string{"1", "1000"}

func TestTwoVersionsExcludeEachOtherOnOneKey(t *testing.T) {
	t.Parallel()
	inBothOrders(t, func(t *testing.T, first, second version) {
		t.Helper()
		dsn, _ := newCounter(t)
		for _, mode := range modes {
			for _, other := range modes {
				t.Run(mode+" and "+other, func(t *testing.T) {
					t.Parallel()
					a, b := first.start(t, dsn, "mutex", mode, "a"), second.start(t, dsn, "mutex", other, "b")
					on := func(command string) string { return command + " " + mode + "-" + other }
					a.says(t, on("try"), "mine")
					b.says(t, on("try"), "held")
					b.says(t, on("read"), "held")
					b.says(t, on("tx"), "held")
					b.Tell(on("wait"))
					a.says(t, on("free"), "free")
					require.Equal(t, "mine", b.Line(), "the waiter")
					a.says(t, on("tx"), "held")
					b.says(t, on("free"), "free")

					a.says(t, on("tx"), "mine")
					b.says(t, on("try"), "held")
					a.says(t, on("free"), "free")

					a.says(t, on("read"), "mine")
					b.says(t, on("read"), "mine")
					c := first.start(t, dsn, "mutex", mode, "c")
					c.says(t, on("try"), "held")
					a.says(t, on("free"), "free")
					b.says(t, on("free"), "free")

					a.says(t, on("slot"), "mine")
					b.says(t, on("slot"), "mine")
					c.says(t, on("slot"), "held")
					b.Kill()
					await.Until(t, await.Patience, func() bool { return c.do(on("slot")) == "mine" }, "the slot of a killed holder is free")
				})
			}
		}
	})
}

func TestTurnsOfTwoVersionsUnderOneKeyLoseNoUpdate(t *testing.T) {
	t.Parallel()
	dsn, count := newCounter(t)
	const turns = 100
	// add has two programs of each version add to one number at a time.
	add := func(key map[string]string) int {
		before := count()
		var peers []peer
		for _, v := range []version{base, today} {
			for _, mode := range modes {
				p := v.start(t, dsn, "mutex", mode, v.name)
				p.Tell(fmt.Sprintf("turns %s %d", key[v.name], turns))
				peers = append(peers, p)
			}
		}
		for _, p := range peers {
			require.Equal(t, fmt.Sprint("added ", turns), p.Line())
			p.CloseStdin()
		}
		return count() - before
	}
	assert.Equal(t, 4*turns, add(map[string]string{"base": "one", "today": "one"}))
	for range 30 { // on a busy machine, the programs can run one after the other
		if add(map[string]string{"base": "one", "today": "another"}) < 4*turns {
			return
		}
	}
	t.Error("the control: without a common key, no update was lost")
}

// term reads the number of an answer such as "term 3".
func term(t *testing.T, answer string) int {
	t.Helper()
	_, number, _ := strings.Cut(answer, " ")
	n, err := strconv.Atoi(number)
	require.NoError(t, err, answer)
	return n
}

func TestNodesOfTwoVersionsAreOneElection(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"postgres", "leased", "file"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			inBothOrders(t, func(t *testing.T, first, second version) {
				t.Helper()
				dsn, count := newCounter(t)
				file := filepath.Join(t.TempDir(), "leader.json")
				if kind == "leased" {
					first.start(t, dsn, "tables").says(t, "migrate leases", "migrated")
				}
				stand := func(v version, identity string) peer {
					p := v.run(t, dsn, file, "elect", kind, identity)
					p.Expect("ready")
					return p
				}
				a := stand(first, "a")
				terms := []int{term(t, a.do("lead"))}
				b := stand(second, "b")
				b.says(t, "seen", fmt.Sprint("a ", terms[0]))
				b.says(t, "leads", "false")
				a.says(t, "stop", "stopped")
				terms = append(terms, term(t, b.do("lead")))
				c := stand(first, "c")
				c.says(t, "seen", fmt.Sprint("b ", terms[1]))
				if kind == "postgres" {
					b.says(t, "write", "written")
					a.says(t, "write", "not leader")
					assert.Equal(t, 1, count())
				}
				b.Kill()
				terms = append(terms, term(t, c.do("lead")))
				assert.IsIncreasing(t, terms)
			})
		})
	}
}

// owned returns a peer's shards with their terms.
func owned(t *testing.T, p peer) map[string]int {
	t.Helper()
	all := map[string]int{}
	for shard := range strings.SplitSeq(strings.TrimPrefix(p.do("owned"), "owned "), ",") {
		if name, number, ok := strings.Cut(shard, ":"); ok {
			n, err := strconv.Atoi(number)
			require.NoError(t, err)
			all[name] = n
		}
	}
	return all
}

func TestNodesOfTwoVersionsSpreadOneGroupOfShards(t *testing.T) {
	t.Parallel()
	inBothOrders(t, func(t *testing.T, first, second version) {
		t.Helper()
		dsn, _ := newCounter(t)
		a := first.start(t, dsn, "shards", "a")
		await.Until(t, await.Patience, func() bool { return len(owned(t, a)) == 6 }, "a owns all")
		b := second.start(t, dsn, "shards", "b")
		await.Until(t, await.Patience, func() bool { return len(owned(t, a)) == 3 && len(owned(t, b)) == 3 }, "each owns its part")
		before := owned(t, a)
		for name := range owned(t, b) {
			assert.NotContains(t, before, name, "one owner")
		}
		a.Kill()
		await.Until(t, await.Patience, func() bool { return len(owned(t, b)) == 6 }, "b owns all")
		after := owned(t, b)
		for name, n := range before {
			assert.Greater(t, after[name], n, "terms of %s rise", name)
		}
		b.says(t, "stop", "stopped")
	})
}

func TestNodesOfTwoVersionsRunATickOnce(t *testing.T) {
	t.Parallel()
	inBothOrders(t, func(t *testing.T, first, second version) {
		t.Helper()
		dsn, count := newCounter(t)
		a, b := first.start(t, dsn, "once", "a"), second.start(t, dsn, "once", "b")
		now := time.Now().Unix()
		on := func(verb string, minutes int64) string { return fmt.Sprint(verb, " ", now-60*minutes) }
		a.says(t, on("begin", 1), "began")
		b.says(t, on("run", 1), "RUNNING a")
		b.says(t, on("tx", 1), "RUNNING a")
		a.says(t, "finish", "did")
		b.says(t, on("run", 1), "RAN a")
		b.says(t, on("tx", 2), "did")
		a.says(t, on("tx", 2), "RAN b")
		a.says(t, on("run", 2), "RAN b")
		b.says(t, on("run", 3), "did")
		a.says(t, on("tx", 3), "RAN b")
		assert.Equal(t, 2, count())
	})
}

// token reads the token of a claim.
func token(t *testing.T, claim string) uint64 {
	t.Helper()
	var c lease.Claim
	require.NoError(t, json.Unmarshal([]byte(claim), &c), claim)
	return c.Token
}

func TestALeaseOfOneVersionIsALeaseOfTheOther(t *testing.T) {
	t.Parallel()
	inBothOrders(t, func(t *testing.T, first, second version) {
		t.Helper()
		dsn, count := newCounter(t)
		first.start(t, dsn, "tables").says(t, "migrate leases", "migrated")
		a, b := first.start(t, dsn, "lease"), second.start(t, dsn, "lease")
		claim := a.do("acquire job a")
		require.Equal(t, claim, b.do("acquire job a"), "it is resent, to the other version")
		b.says(t, "acquire job b", "held by a")
		b.says(t, "guard "+claim, "guarded")
		b.says(t, "renew "+claim, "renewed")
		a.says(t, "release "+claim, "released")
		next := b.do("acquire job b")
		assert.Greater(t, token(t, next), token(t, claim))
		b.says(t, "release "+claim, "released") // resent
		a.says(t, "guard "+claim, "over")
		a.says(t, "renew "+claim, "over")
		a.says(t, "guard "+next, "guarded")
		assert.Equal(t, 2, count())
	})
}

func TestProcessesOfTwoVersionsAnswerEachOther(t *testing.T) {
	t.Parallel()
	inBothOrders(t, func(t *testing.T, first, second version) {
		t.Helper()
		dsn, _ := newCounter(t)
		holder := first.start(t, dsn, "mutex", "1", "holder-program")
		holder.says(t, "try order", "mine")
		leader := first.start(t, dsn, "elect", "postgres", "leader-program")
		term(t, leader.do("lead"))
		awaitAnswers(t, dsn, 2)
		tell := func(v version, want string, args ...string) {
			t.Helper()
			var p *clitest.Program
			await.Until(t, await.Patience, func() bool { // a busy process may answer too late
				p = v.command(t, dsn, args...)
				return p.Wait() == 0 && strings.Contains(p.Stdout.String(), want)
			}, func() string { return strings.Join(args, " ") + "\n" + p.Stdout.String() + p.Stderr.String() })
		}
		for _, v := range []version{first, second} {
			tell(v, "entity/order", "status", "entity/order")
			tell(v, "holder-program", "status", "entity/order", "-o", "json")
			tell(v, "leader-program", "leader", "status", "entity/leader")
		}
		holder.Tell("asked order")
		tell(second, "", "ask", "entity/order")
		require.Equal(t, "asked", holder.Line())
		before := term(t, leader.do("lead"))
		tell(second, "", "leader", "resign", "entity/leader")
		await.Until(t, await.Patience, func() bool { return term(t, leader.do("lead")) > before }, "it has resigned, and leads again")
	})
}

// awaitAnswers waits until so many processes can be asked.
func awaitAnswers(t *testing.T, dsn string, n int) {
	t.Helper()
	look := pgtest.Connect(t, dsn)
	await.Until(t, await.Patience, func() bool {
		var listening int
		require.NoError(t, look.QueryRow(t.Context(),
			"SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'").Scan(&listening))
		return listening == n
	}, "nobody can be asked")
}

func TestAProgramOfOneVersionEndsWhatTheOtherLeft(t *testing.T) {
	t.Parallel()
	inBothOrders(t, func(t *testing.T, first, second version) {
		t.Helper()
		dsn, _ := newCounter(t)
		a, b := first.start(t, dsn, "mutex", "1", "a"), second.start(t, dsn, "mutex", "1", "b")
		a.says(t, "try order", "mine")
		b.Tell("wait order")
		a.Signal(syscall.SIGKILL)
		require.Equal(t, "mine", b.Line(), "a killed holder's lock is free")
	})
}
