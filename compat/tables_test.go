//go:build integration

package compat_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/proctest"
)

// uses are what programs do with the tables of each feature. Each starts a program of a version, and returns the answer
// of an operation on the tables: "ok", or what the program says instead.
var uses = map[string]func(t *testing.T, v version, dsn string) string{
	"elections": func(t *testing.T, v version, dsn string) string {
		t.Helper()
		return operate(t, v, dsn, []string{"elect", "postgres", v.name}, "lead", "term ", "stop")
	},
	"shards": func(t *testing.T, v version, dsn string) string {
		t.Helper()
		return operate(t, v, dsn, []string{"shards", v.name}, "all", "owned ", "stop")
	},
	"once": func(t *testing.T, v version, dsn string) string {
		t.Helper()
		return operate(t, v, dsn, []string{"once", v.name}, fmt.Sprint("run ", time.Now().Unix()), "")
	},
	"mailboxes": func(t *testing.T, v version, dsn string) string {
		t.Helper()
		return operate(t, v, dsn, []string{"mailbox", v.name}, "use", "used")
	},
	"leases": func(t *testing.T, v version, dsn string) string {
		t.Helper()
		return operate(t, v, dsn, []string{"lease"}, "acquire "+v.name+" "+v.name, "{")
	},
}

// operate starts a peer, sends a command, and then others. It returns "ok" if the answer begins with want.
func operate(t *testing.T, v version, dsn string, role []string, command, want string, then ...string) string {
	t.Helper()
	p := v.run(t, dsn, "", role...)
	if said := p.Line(); said != "ready" {
		return said
	}
	answer := p.do(command)
	for _, command := range then {
		p.do(command)
	}
	p.CloseStdin()
	p.Wait()
	if strings.HasPrefix(answer, want) && !strings.Contains(answer, "error:") && !strings.Contains(answer, "refused:") {
		return "ok"
	}
	return answer
}

// A program that makes tables beside a program of another version must leave that one working.
func TestTablesOfTwoVersionsInBothOrders(t *testing.T) {
	t.Parallel()
	for kind, use := range uses {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			base := base
			if kind == "mailboxes" {
				base = baseTurns
			}
			for _, verb := range []string{"migrate", "script"} {
				t.Run(verb, func(t *testing.T) {
					t.Parallel()
					inBothOrdersOf(t, base, func(t *testing.T, first, second version) {
						t.Helper()
						dsn, _ := newCounter(t)
						first.start(t, dsn, "tables").says(t, verb+" "+kind, "migrated")
						assert.Equal(t, "ok", use(t, first, dsn), "its own tables")
						if second == base {
							assert.Equal(t, "ok", use(t, base, dsn), "a program of the base goes on with the tables of today")
						} else if said := use(t, today, dsn); said != "ok" {
							assert.Contains(t, said, "refused: ", "a program of today works with the tables of the base, or refuses them clearly")
						}
						said := second.start(t, dsn, "tables").do(verb + " " + kind)
						if second == base && verb == "script" && said != "migrated" {
							assert.Contains(t, said, "nothing was changed", "the script of an earlier version refuses a later one")
						} else {
							assert.Equal(t, "migrated", said)
						}
						assert.Equal(t, "ok", use(t, first, dsn), "afterwards, the first")
						assert.Equal(t, "ok", use(t, second, dsn), "afterwards, the second")
					})
				})
			}
		})
	}
}

func TestAFileOfLeasesOfTheOtherVersionIsUsedOrRefused(t *testing.T) {
	t.Parallel()
	inBothOrders(t, func(t *testing.T, first, second version) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "leases.db")
		open := func(v version) (peer, string) {
			p := v.run(t, "", file, "sqlite")
			return p, p.Line()
		}
		end := func(p peer) {
			p.CloseStdin()
			require.Zero(t, p.Wait())
		}
		a, said := open(first)
		require.Equal(t, "ready", said)
		claim := a.do("acquire job a")
		end(a)
		b, said := open(second)
		if said != "ready" {
			require.Contains(t, said, "refused: ")
			return
		}
		b.says(t, "acquire job b", "held by a")
		b.says(t, "renew "+claim, "renewed")
		b.says(t, "release "+claim, "released")
		next := b.do("acquire job b")
		assert.Greater(t, token(t, next), token(t, claim))
		end(b)
		a, said = open(first)
		require.Equal(t, "ready", said, "the version before goes on with the file")
		a.says(t, "renew "+next, "renewed")
		end(a)
	})
}

// The Python client of each version, with a server of the other.
func TestAClientOfOneVersionUsesAServerOfTheOther(t *testing.T) {
	t.Parallel()
	const program = `
import pglatch, sys
client = pglatch.Client([sys.argv[1]])
with client.acquire("job", wait=10) as lease:
    lease.check()
    print("token", lease.token)
`
	inBothOrders(t, func(t *testing.T, first, second version) {
		t.Helper()
		server := second.command(t, "", "serve", "locks", "--listen", "127.0.0.1:0", "--store", "sqlite:"+filepath.Join(t.TempDir(), "locks.db"))
		url := "http://" + server.Match(&server.Stderr, `msg=serving.* address=(\S+)`)[1]
		cmd := proctest.Command(t, "python3", "-c", program, url)
		cmd.Env = append(cmd.Environ(), "PYTHONPATH="+filepath.Join(first.tree, "clients", "python"), "PYTHONDONTWRITEBYTECODE=1")
		client := proctest.Start(t, cmd)
		client.Says("token ")
		require.Zero(t, client.Wait())
	})
}

// serve starts a lock server on PostgreSQL, and returns its URL.
func serve(t *testing.T, v version, dsn string) (*clitest.Program, string) {
	t.Helper()
	p := v.command(t, dsn, "serve", "locks", "--listen", "127.0.0.1:0", "--store", dsn)
	return p, "http://" + p.Match(&p.Stderr, `msg=serving.* address=(\S+)`)[1]
}

// holding starts a command under a lease. The command prints "works", and runs until end.
func holding(t *testing.T, v version, servers, name string, more ...string) *clitest.Program {
	t.Helper()
	args := append([]string{"lease", "run", "--server", servers, name}, more...)
	return v.command(t, "", append(args, "-c", "echo works; trap 'exit 0' TERM; sleep 300 & wait; kill $!")...)
}

// end ends a command that holding started, and with it its lease.
func end(t *testing.T, p *clitest.Program) {
	t.Helper()
	p.Signal(syscall.SIGTERM)
	assert.Contains(t, []int{0, 143}, p.Wait(), p.Stderr.String())
}

func TestLockServersOfTwoVersionsForwardAndServe(t *testing.T) {
	t.Parallel()
	inBothOrders(t, func(t *testing.T, first, second version) {
		t.Helper()
		dsn := pgtest.DSN(t)
		active, a := serve(t, first, dsn)
		active.Saying(&active.Stderr, "msg=server_active")
		forwarding, b := serve(t, second, dsn)
		forwarding.Saying(&forwarding.Stderr, "msg=server_forwards to="+a)

		// One queue, in which clients of both versions wait at both servers.
		for _, v := range []version{first, second} {
			holder := holding(t, v, a, "queue")
			holder.Saying(&holder.Stdout, "works")
			var waiters []*clitest.Program
			for _, w := range []version{first, second} {
				for _, url := range []string{a, b} {
					waiters = append(waiters, w.command(t, "", "lease", "run", "--server", url, "--wait", "1m", "queue", "--", "echo", "had its turn"))
				}
			}
			refused := second.command(t, "", "lease", "run", "-n", "--server", b, "queue", "--", "true")
			assert.Equal(t, 75, refused.Wait(), refused.Stderr.String())
			end(t, holder)
			for _, w := range waiters {
				assert.Zero(t, w.Wait(), w.Stderr.String())
				assert.Contains(t, w.Stdout.String(), "had its turn")
			}
		}
		// Slots, readers and batches of many clients, whose promises are checked.
		var loads []*clitest.Program
		for _, v := range []version{first, second} {
			loads = append(loads, v.command(t, "", "load", "--target", "lease", "--server", b, "--duration", "2s", "--clients", "20"))
		}
		slots := []*clitest.Program{holding(t, first, b, "gpu", "--slots", "2"), holding(t, second, a, "gpu", "--slots", "2")}
		for _, p := range slots {
			p.Saying(&p.Stdout, "works")
		}
		full := second.command(t, "", "lease", "run", "-n", "--slots", "2", "--server", b, "gpu", "--", "true")
		assert.Equal(t, 75, full.Wait(), full.Stderr.String())
		for _, p := range slots {
			end(t, p)
		}
		for _, p := range loads {
			assert.Zero(t, p.Wait(), p.Stdout.String()+p.Stderr.String())
		}

		// The active server dies: the other version's is active, and clients of both versions keep their leases.
		keepers := []*clitest.Program{holding(t, first, a+","+b, "kept by first"), holding(t, second, a+","+b, "kept by second")}
		for _, p := range keepers {
			p.Saying(&p.Stdout, "works")
		}
		active.Signal(syscall.SIGKILL)
		forwarding.Saying(&forwarding.Stderr, "msg=server_active")
		for _, name := range []string{"kept by first", "kept by second"} {
			get := first.command(t, "", "lease", "get", "--server", b, name, "-o", "json")
			assert.Zero(t, get.Wait(), get.Stderr.String())
		}
		<-time.After(6 * time.Second) // more than a third of the TTL: each has renewed
		for _, p := range keepers {
			select {
			case <-p.Done:
				require.Fail(t, "it has lost its lease", p.Stderr.String())
			default:
			}
			end(t, p)
		}
		again, _ := serve(t, first, dsn)
		again.Match(&again.Stderr, `msg=server_forwards`)
		await.Until(t, await.Patience, func() bool {
			p := first.command(t, "", "lease", "run", "-n", "--server", b, "kept by first", "--", "true")
			return p.Wait() == 0
		}, "it is free")
	})
}

// A handled message is a row that a node wrote when it committed the message's turn.
type handled struct {
	Entity, Message, Node string
}

// disorder returns the first difference between the messages of an entity that were handled, and the numbers from 1.
func disorder(log []handled, entity string) string {
	next := 1
	for _, h := range log {
		if h.Entity == entity {
			if h.Message != fmt.Sprint(next) {
				return fmt.Sprintf("message %s after %d", h.Message, next-1)
			}
			next++
		}
	}
	return ""
}

func TestTurnsOfTwoVersionsServeOneMailboxInOrderAndOnce(t *testing.T) {
	t.Parallel()
	assert.NotEmpty(t, disorder([]handled{{"e", "1", ""}, {"e", "1", ""}}, "e"), "the control: one message twice")
	assert.NotEmpty(t, disorder([]handled{{"e", "2", ""}, {"e", "1", ""}}, "e"), "the control: another order")
	inBothOrdersOf(t, baseTurns, func(t *testing.T, first, second version) {
		t.Helper()
		dsn := pgtest.DSN(t)
		conn := pgtest.Connect(t, dsn)
		_, err := conn.Exec(t.Context(), "CREATE TABLE handled (n bigserial PRIMARY KEY, entity text, message text, node text)", pgx.QueryExecModeSimpleProtocol)
		require.NoError(t, err)
		first.start(t, dsn, "tables").says(t, "migrate mailboxes", "migrated")
		second.start(t, dsn, "tables").says(t, "migrate mailboxes", "migrated")
		log := func() []handled {
			rows, err := conn.Query(t.Context(), "SELECT entity, message, node FROM handled ORDER BY n")
			require.NoError(t, err)
			all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[handled])
			require.NoError(t, err)
			return all
		}
		handles := func(want handled, what string) {
			t.Helper()
			await.Until(t, await.Patience, func() bool { return slices.Contains(log(), want) }, what)
		}
		// wait has the only node that is free begin a turn that lasts.
		wait := func(p peer, entity string) {
			p.says(t, "send "+entity+" wait", "sent")
			await.Until(t, await.Patience, func() (running bool) {
				require.NoError(t, conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pglatch_turns.entities WHERE entity = $1 AND state = 'running')", entity).Scan(&running))
				return running
			}, "its turn runs")
		}
		sent := 0
		// send sends messages of three entities, from peers in turn, and waits until node has handled them.
		send := func(node string, peers ...peer) {
			t.Helper()
			before := log()
			for range 10 {
				sent++
				for _, entity := range []string{"x", "y", "z"} {
					peers[sent%len(peers)].says(t, fmt.Sprint("send ", entity, " ", sent), "sent")
				}
			}
			await.Until(t, await.Patience, func() bool { return len(log()) == len(before)+30 }, "all are handled")
			for _, h := range log()[len(before):] {
				assert.Equal(t, node, h.Node)
			}
		}

		a, b := first.start(t, dsn, "mailbox", "a"), second.start(t, dsn, "mailbox", "b")
		a.says(t, "serve", "serves")
		wait(b, "first")
		b.says(t, "serve", "serves")
		send("b", a, b)
		b.says(t, "interrupt first", "interrupted")
		handles(handled{"first", "wait", "a"}, "the turn of the other version ends")
		b.says(t, "stop", "stopped")
		send("a", a, b)
		wait(b, "second")
		b.says(t, "serve", "serves")
		a.Signal(syscall.SIGKILL)
		handles(handled{"second", "wait", "b"}, "a killed node's turn goes to the other version")
		send("b", b)

		for _, entity := range []string{"x", "y", "z"} {
			assert.Empty(t, disorder(log(), entity), entity)
		}
		assert.Len(t, log(), 3*sent+2)
	})
}
