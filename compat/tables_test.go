//go:build integration

package compat_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
