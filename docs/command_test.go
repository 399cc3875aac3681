package docs_test

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/gobuild"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/leader/shards"
	shardspostgres "github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/once/postgres"
	"github.com/pglatch/pglatch/turns"
)

// A stage is where a command of a page runs: a directory with the programs that pages name, a
// database, and a lock server.
type stage struct {
	t        *testing.T
	dir, dsn string
	env      []string
}

// scripts are the programs of users that pages name; each tells that it works, and goes on until it is told to end.
var scripts = []string{"reindex.sh", "report.sh", "scheduler", "train", "import.sh"}

func newStage(t *testing.T) *stage {
	t.Helper()
	s := &stage{t: t, dir: t.TempDir(), dsn: pgtest.DSN(t)}
	for _, name := range scripts {
		text := "#!/bin/sh\ntrap 'kill $! 2>/dev/null; exit 0' TERM\necho works with token \"$PGLATCH_FENCING_TOKEN\"\n[ -n \"$PGLATCH_DOCS_END\" ] && exit 0\nsleep 300 >/dev/null 2>&1 & wait; kill $!\n"
		require.NoError(t, gobuild.WriteExecutable(filepath.Join(s.dir, name), []byte(text)))
	}
	_, address := clitest.Serve(t, clitest.At(clitest.Nowhere), "--store", "sqlite:"+filepath.Join(t.TempDir(), "locks.db"))
	s.env = clitest.At(s.dsn, "PGLATCH_NAMESPACES=agent=1,order=2", "PGLATCH_LOCK_SERVER=http://"+address,
		"STATE_DIRECTORY=", "XDG_STATE_HOME="+t.TempDir(),
		"PATH="+filepath.Dir(clitest.Binary)+":"+os.Getenv("PATH"))
	return s
}

// start runs a command of a page in a shell.
func (s *stage) start(command string, env ...string) *clitest.Program {
	s.t.Helper()
	server := regexp.MustCompile(`PGLATCH_LOCK_SERVER=http://(\S+)`).FindStringSubmatch(strings.Join(s.env, " "))[1]
	command = strings.ReplaceAll(command, "localhost:8080", server)
	p := clitest.StartCommand(s.t, append(s.env, env...), "/bin/sh", "-c", "cd "+s.dir+" && exec "+command)
	p.Limit = await.Patience
	return p
}

// hold has another process hold a key, and releases it when it is asked to.
func (s *stage) hold(key string) *clitest.Program {
	s.t.Helper()
	p := s.start("pglatch run " + key + " --on-ask term -- ./reindex.sh")
	s.answers(p)
	return p
}

// answers waits until a command works, and its process can be asked, which begins a second after
// its first connection. It is told to end at the end of the test.
func (s *stage) answers(p *clitest.Program) {
	s.t.Helper()
	s.t.Cleanup(func() {
		p.Stop()
	})
	p.Saying(&p.Stdout, "works")
	look := clitest.Connect(s.t, s.dsn, "look")
	await.Until(s.t, await.Patience, func() (listens bool) {
		err := look.QueryRow(s.t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%')`).Scan(&listens)
		return err == nil && listens
	}, "the process cannot be asked")
	require.NoError(s.t, look.Close(s.t.Context()))
}

// A trial runs a command, and judges what comes of it.
type trial func(s *stage, command string)

// ends is a command that ends with an exit code, and says something.
func ends(code int, says string) trial {
	return func(s *stage, command string) {
		p := s.start(command, "PGLATCH_DOCS_END=1")
		assert.Equal(s.t, code, p.Wait(), p.Stderr.String())
		assert.Contains(s.t, p.Stdout.String()+p.Stderr.String(), says)
	}
}

// saysWhoHasIt is a command that says who has the lock, which the server may say too late.
func saysWhoHasIt(s *stage, command string) {
	var p *clitest.Program
	await.Until(s.t, await.Patience, func() bool {
		p = s.start(command, "PGLATCH_DOCS_END=1")
		assert.Equal(s.t, 75, p.Wait(), p.Stderr.String())
		return !strings.Contains(p.Stderr.String(), "its holder is unknown")
	}, func() string { return p.Stderr.String() })
	assert.Contains(s.t, p.Stderr.String(), "is held by")
}

// answered is ends of a request. The command waits one second for the answer, and a busy process may need longer: then
// the request is sent again.
func answered(code int) trial {
	return func(s *stage, command string) {
		good := []int{code}
		var p *clitest.Program
		await.Until(s.t, await.Patience, func() bool {
			p = s.start(command, "PGLATCH_DOCS_END=1")
			if p.Wait() != 69 {
				return true
			}
			good = []int{code, 3} // the holder may have heard the request, and be gone
			return false
		}, func() string { return p.Stderr.String() })
		assert.Contains(s.t, good, p.Wait(), p.Stderr.String())
	}
}

// looksForAWhile watches for a shorter time than on the page. Other tests use the server, so there may be verdicts about
// it. A busy machine may read no tables in this time.
func looksForAWhile(s *stage, command string) {
	p := s.start(strings.Replace(command, "2m", "1s", 1))
	assert.Contains(s.t, []int{0, 3, 69}, p.Wait(), p.Stderr.String())
}

// proves is ends(0, says) of a command that a busy machine does not answer in time.
func proves(says string) trial {
	return func(s *stage, command string) {
		var p *clitest.Program
		await.Until(s.t, await.Patience, func() bool {
			p = s.start(command)
			return p.Wait() != 75
		}, func() string { return p.Stdout.String() })
		assert.Zero(s.t, p.Wait(), p.Stderr.String())
		assert.Contains(s.t, p.Stdout.String(), says)
	}
}

// runs on until it is told to end; before, it has said something.
func until(says string) trial {
	return func(s *stage, command string) {
		p := s.start(command)
		await.Until(s.t, await.Soon, func() bool { return strings.Contains(p.Stdout.String()+p.Stderr.String(), says) },
			func() string { return says + "\n" + p.Stdout.String() + p.Stderr.String() })
		p.Signal(syscall.SIGTERM)
		assert.Contains(s.t, []int{0, 143}, p.Wait(), p.Stderr.String())
	}
}

// while another process holds a key.
func while(key string, then trial) trial {
	return func(s *stage, command string) {
		s.hold(key)
		then(s, command)
	}
}

// target is a target of make that the whole of the tests runs, or takes too long for them: make knows it.
func target(s *stage, command string) {
	name, _, _ := strings.Cut(strings.TrimPrefix(command, "make "), " ")
	output, err := exec.CommandContext(s.t.Context(), "make", "-C", "..", "--dry-run", name).CombinedOutput()
	assert.NoError(s.t, err, "%s", output)
}

// released is what only a version of this module can show: make release-trial runs it.
func released(s *stage, _ string) { target(s, "make release-trial") }

// environment is a line that sets what stages set, too.
func environment(s *stage, command string) {
	assert.Contains(s.t, command, "PGLATCH_NAMESPACES=agent=1,order=2")
}

// onTerminal draws until q is pressed.
func onTerminal(key string) trial {
	return func(s *stage, command string) {
		s.hold(key)
		x := clitest.StartOnTerminal(s.t, s.env, 120, 30, strings.Fields(command)[1:]...)
		x.Shows(func(lines []string) bool { return strings.Contains(strings.Join(lines, "\n"), key) })
		x.Types("q")
		assert.Zero(s.t, x.Wait())
	}
}

// trials are all commands of all pages. One that is not here fails the test.
var trials = map[string]trial{
	"go get github.com/pglatch/pglatch":                        released,
	"go install github.com/pglatch/pglatch/cmd/pglatch@latest": released,
	"make demo": target,
	"make test": target,
	"export DATABASE_URL=postgres://localhost/shop PGLATCH_NAMESPACES=agent=1,order=2": environment,

	"pglatch run agent/42 -- ./reindex.sh":      ends(0, "works"),
	"pglatch run nightly-report -- ./report.sh": ends(0, ""),
	"pglatch run -n agent/42 -- ./reindex.sh":   while("agent/42", saysWhoHasIt),
	"pglatch ls":                                    while("agent/42", ends(0, "agent/42")),
	"pglatch ls --waiting":                          waiting("agent/42"),
	"pglatch ls --waiting --sort wait":              waiting("order/42"),
	"pglatch watch":                                 onTerminal("agent/42"),
	"pglatch verdicts":                              while("order/42", ends(0, "")),
	"pglatch verdicts --watch --for 2m --exit-code": looksForAWhile,
	"pglatch status agent/42":                       while("agent/42", ends(0, "agent/42")),
	"pglatch status order/42":                       while("order/42", ends(0, "order/42")),
	"pglatch tree":                                  waiting("agent/42"),
	"pglatch key agent/42":                          ends(0, "pg_advisory_lock(1, 42)"),
	"pglatch ask agent/42":                          while("agent/42", answered(0)),
	"pglatch ask order/42":                          while("order/42", answered(0)),
	"pglatch dump agent/42":                         while("agent/42", answered(77)), // run allows it nobody
	"pglatch dump order/42":                         while("order/42", answered(77)),
	"pglatch terminate 4711":                        terminates,
	"pglatch terminate 4711 --dry-run":              saysWhatWouldEnd,
	"pglatch serve monitor":                         serves,
	"pglatch serve monitor --dsn prod=postgres://db-1/shop --dsn staging=postgres://db-2/shop":    serves,
	"pglatch serve monitor --dsn prod=postgres://db-1/shop --server locks=https://locks.internal": serves,
	"pglatch doctor":                             ends(0, ""),
	"pglatch doctor --prove":                     proves("stable pid"),
	"pglatch doctor --prove --parts LockTx,once": proves("LockTx     may be used"),
	"pglatch doctor --prove -o jsonl":            proves(`"part":"mutex"`),

	"pglatch migrate":                         ends(0, ""),
	"pglatch leader run 100:1 -- ./scheduler": after("pglatch migrate", until("works with token")),
	"pglatch leader status 100:1":             after("pglatch migrate", ends(3, "")),
	"pglatch leader resign 100:1":             resigns,
	"pglatch leader verify a.log b.log":       verifies,

	"pglatch shards ls tenant=7":                         sharded(ends(0, "acme ")),
	"pglatch shards ls tenant=7 --unowned":               sharded(ends(0, "0 of 3 shards are shown")),
	"pglatch shards ls tenant=7 --node web-3 --prefix a": sharded(ends(0, "shards are shown")),
	"pglatch shards drain tenant=7 web-3 --wait 2m":      sharded(ends(0, "web-3 of tenant is drained: it owns no shard")),
	"pglatch shards drain tenant=7 web-3 --undo":         sharded(after("pglatch shards drain tenant=7 web-3 --wait 2m", ends(0, "web-3 of tenant may claim shards again"))),
	"pglatch shards pin tenant=7 acme web-3 --wait 1m":   sharded(ends(0, "acme of tenant is pinned to web-3, which owns it")),
	"pglatch shards pin tenant=7 acme --remove":          sharded(after("pglatch shards pin tenant=7 acme web-3 --wait 1m", ends(0, "acme of tenant is not pinned any more"))),

	"pglatch turns ls":                                             mailed(ends(0, "conversation/42  ready")),
	"pglatch turns ls chat --dead":                                 mailed(ends(0, "no model")),
	"pglatch turns show conversation/42":                           mailed(ends(0, "conversation/42  ready")),
	"pglatch turns interrupt conversation/42 --reason 'user left'": mailed(ends(3, "no turn is running")),
	"pglatch turns retry conversation/42":                          mailed(ends(0, "put back dead letters of conversation/42: 1")),
	"pglatch turns skip conversation/42 17":                        mailed(ends(3, "no such dead letter")),
	"pglatch turns purge conversation/42 --yes":                    mailed(ends(0, "deleted messages of conversation/42: 2")),

	"make demo-shards ONCE=1": target,
	"make demo-turns ONCE=1":  target,

	"pglatch serve locks":                                      serves,
	"pglatch lease run nightly-report -- ./report.sh":          ends(0, "works with token 1"),
	"pglatch lease get nightly-report":                         after("pglatch lease run nightly-report -- ./report.sh", ends(3, "nightly-report")),
	"pglatch lease force-release nightly-report --reason gone": after("pglatch lease run nightly-report -- ./report.sh", ends(3, "nightly-report")),
	"pglatch lease get nightly-report --wait 10s":              changes,
	"pglatch lease get nightly-report --wait 10s --index 7":    changes,
	"pglatch lease get nightly-report --follow":                until("nightly-report FREE"),
	"pglatch lease get nightly-report --follow -o jsonl":       until(`"state":"FREE"`),
	"pglatch lease renew nightly-report --metadata done=40%":   renews,
	"pglatch load --target lease --duration 1s":                ends(0, ""),

	"pglatch serve locks --store postgres://localhost/shop --listen 127.0.0.1:8080":                                              servesOn,
	"pglatch serve locks --store postgres://localhost/shop --listen 127.0.0.1:8081":                                              servesOn,
	"pglatch serve locks --store postgres://localhost/shop --listen 127.0.0.1:8082":                                              servesOn,
	"pglatch lease run --server http://localhost:8080,http://localhost:8081,http://localhost:8082 nightly-report -- ./report.sh": ends(0, "works with token 1"),

	"pglatch lease run --slots 3 gpu -- ./train":             ends(0, "works with token"),
	"pglatch lease run --shared catalogue -- ./report.sh":    ends(0, "works with token"),
	"pglatch lease run --exclusive catalogue -- ./import.sh": ends(0, "works with token"),
	"pglatch lease list --prefix gpu::slot::":                after("pglatch lease run --slots 3 gpu -- ./train", ends(0, "gpu::slot::0001")),

	"umask 077; pglatch lease acquire nightly-report --ttl 5m --export > lease.env":                                         inShell(0, ""),
	". ./lease.env && pglatch lease adopt nightly-report && pglatch lease renew nightly-report --ttl 5m":                    adopts,
	"curl 'http://localhost:8080/v1/locks/nightly-report?wait=10s&index=7'":                                                 after("pglatch lease run nightly-report -- ./report.sh", ends(0, `"state":"FREE"`)),
	`curl --json '{"owner_id":"worker-1","ttl_ms":30000}' 'http://localhost:8080/v1/locks/nightly-report/acquire?wait=10s'`: ends(0, `"fencing_token":1`),

	`curl --json '{"operations":[{"acquire":{"lock":"a","owner_id":"w","ttl_ms":30000,"idempotency_key":"k1"}},{"release":{"lock":"b","owner_id":"w","lease_id":"x","fencing_token":1}}]}' http://localhost:8080/v1/batch`: ends(0, `{"status":200,"lease":{"lock":"a"`),
}

// after another command that ends well.
func after(first string, then trial) trial {
	return func(s *stage, command string) {
		ends(0, "")(s, first)
		then(s, command)
	}
}

// inShell is ends of what takes a shell: it sets something in it.
func inShell(code int, says string) trial {
	return func(s *stage, command string) { ends(code, says)(s, "/bin/sh -c '"+command+"'") }
}

// adopts a lease whose holder has ended.
func adopts(s *stage, command string) {
	inShell(0, "")(s, "pglatch lease acquire nightly-report --ttl 5m --export > lease.env")
	inShell(0, "adopted nightly-report")(s, command)
}

// renews a lease that it has.
func renews(s *stage, command string) {
	inShell(0, "")(s, "pglatch lease acquire nightly-report --export > lease.env")
	inShell(0, "renewed nightly-report")(s, ". ./lease.env && "+command)
	ends(0, `"done": "40%"`)(s, "pglatch lease get nightly-report -o json")
}

// changes waits for what changes a lock that is known, as soon as it looks or a while later.
func changes(s *stage, command string) {
	ends(0, "")(s, "pglatch lease run nightly-report -- ./report.sh")
	look := s.start(strings.Replace(command, "10s", "5m", 1))
	await.Until(s.t, await.Soon, func() bool {
		select {
		case <-look.Done:
			return true
		default:
			ends(0, "")(s, "pglatch lease run nightly-report -- ./report.sh")
			return false
		}
	}, look.Stderr.String)
	assert.Contains(s.t, []int{0, 3}, look.Wait(), look.Stderr.String())
	assert.Contains(s.t, look.Stdout.String(), "nightly-report")
}

// waiting shows a key that one process holds and another waits for.
func waiting(key string) trial {
	return func(s *stage, command string) {
		s.hold(key)
		waiter := s.start("pglatch run " + key + " -- ./reindex.sh")
		clitest.RequireWaiting(s.t, clitest.Connect(s.t, s.dsn, "look"))
		var look *clitest.Program
		await.Until(s.t, await.Soon, func() bool { // the server tells a moment later who waits for whom
			look = s.start(command)
			return look.Wait() == 0 && strings.Contains(look.Stdout.String(), key)
		}, func() string { return look.Stdout.String() + look.Stderr.String() })
		waiter.Signal(syscall.SIGTERM)
		assert.Equal(s.t, 143, waiter.Wait())
	}
}

// terminates the session of a holder, whose pid is not the one on the page.
func terminates(s *stage, command string) {
	holder := s.hold("agent/42")
	pids := clitest.Holders(s.t, clitest.Connect(s.t, s.dsn, "look"))
	require.NotEmpty(s.t, pids)
	command = strings.Replace(command, "4711", strconv.Itoa(pids[0]), 1)
	refused := s.start(command)
	assert.Equal(s.t, 64, refused.Wait(), "without a terminal to ask on")
	assert.Contains(s.t, refused.Stderr.String(), "agent/42", "what it costs")
	ends(0, "")(s, command+" --yes")
	assert.Equal(s.t, 76, holder.Wait(), holder.Stderr.String())
}

// saysWhatWouldEnd does, and ends nothing.
func saysWhatWouldEnd(s *stage, command string) {
	holder := s.hold("agent/42")
	pids := clitest.Holders(s.t, clitest.Connect(s.t, s.dsn, "look"))
	require.NotEmpty(s.t, pids)
	ends(0, "agent/42")(s, strings.Replace(command, "4711", strconv.Itoa(pids[0]), 1))
	holder.Signal(syscall.SIGTERM) // it holds on
	assert.Zero(s.t, holder.Wait(), holder.Stderr.String())
}

// resigns a leader that allows it.
func resigns(s *stage, command string) {
	ends(0, "")(s, "pglatch migrate")
	leader := s.start("pglatch leader run 100:1 --allow-resign -- ./scheduler")
	s.answers(leader)
	answered(0)(s, command)
	await.Until(s.t, await.Soon, func() bool { return strings.Count(leader.Stdout.String(), "works with token") >= 2 },
		func() string { return "leads again: " + leader.Stderr.String() })
}

// verifies the logs of two nodes that led one after the other.
func verifies(s *stage, command string) {
	ends(0, "")(s, "pglatch migrate")
	for _, name := range []string{"a.log", "b.log"} {
		node := s.start("pglatch leader run 100:1 --log-format json -- ./scheduler")
		node.Saying(&node.Stdout, "works with token")
		node.Signal(syscall.SIGTERM)
		assert.Zero(s.t, node.Wait(), node.Stderr.String())
		require.NoError(s.t, os.WriteFile(filepath.Join(s.dir, name), []byte(node.Stderr.String()), 0o600))
	}
	ends(0, "apart")(s, command)
}

// sharded has two nodes own three shards.
func sharded(then trial) trial {
	return func(s *stage, command string) {
		for _, identity := range []string{"web-2", "web-3"} {
			backend, err := shardspostgres.New(shardspostgres.Config{DSN: s.dsn, Namespace: namespace.Must(7, "tenant"), CreateTable: true})
			require.NoError(s.t, err)
			node, err := shards.New(shards.Config{
				Name: "tenant", Backend: backend, Identity: identity, Shards: []string{"acme", "globex", "initech"},
				LookInterval: 100 * time.Millisecond, MinStay: -1, // or one shard moves when the first node got all of them
			})
			require.NoError(s.t, err)
			ctx, stop := context.WithCancel(s.t.Context())
			ended := make(chan error, 1)
			go func() {
				ended <- node.Run(ctx, func(ctx context.Context, _ shards.Shard) error { <-ctx.Done(); return nil })
			}()
			s.t.Cleanup(func() {
				stop()
				assert.NoError(s.t, <-ended)
			})
		}
		var stdout string
		await.Until(s.t, await.Soon, func() bool {
			var code int
			stdout, _, code = clitest.Run(s.t, s.env, "shards", "ls", "tenant=7")
			return code == 0 && len(regexp.MustCompile(`(?m)^web-[23] +\d+ +[12] `).FindAllString(stdout, -1)) == 2
		}, func() string { return stdout })
		then(s, command)
	}
}

// mailed makes a mailbox in which an entity has a message that waits and a dead letter.
func mailed(then trial) trial {
	return func(s *stage, command string) {
		pool, err := pgxpool.New(s.t.Context(), s.dsn)
		require.NoError(s.t, err)
		s.t.Cleanup(pool.Close)
		box, err := turns.Open(s.t.Context(), turns.Config{Pool: pool, Name: "chat", Namespace: namespace.Must(14, "conversation")})
		require.NoError(s.t, err)
		require.NoError(s.t, box.Migrate(s.t.Context()))
		for _, sql := range []string{
			`SELECT pglatch_turns.pglatch_send('chat', '42', 'hello')`,
			`INSERT INTO pglatch_turns.dead (mailbox, number, entity, position, id, trace, sent_at, body, attempts, error, died_at)
			 SELECT 'chat', nextval('pglatch_turns.number'), '42', 2, '', '', now(), '', 5, 'no model', now()`,
		} {
			_, err := pool.Exec(s.t.Context(), sql)
			require.NoError(s.t, err)
		}
		then(s, command)
	}
}

// serves on another port than the page's, which may be taken.
func serves(s *stage, command string) { until("serving")(s, command+" --listen 127.0.0.1:0") }

// servesOn is one of several servers of a database: it forwards to the active one, which has the same command. Their ports are not the page's.
func servesOn(s *stage, command string) {
	command, _, _ = strings.Cut(strings.Replace(command, "postgres://localhost/shop", s.dsn, 1), " --listen")
	command += " --listen 127.0.0.1:0"
	active := s.start(command)
	active.Match(&active.Stderr, `msg=server_active`)
	until("msg=server_forwards to=http://127.0.0.1:")(s, command)
	active.Signal(syscall.SIGTERM)
	assert.Contains(s.t, []int{0, 143}, active.Wait(), active.Stderr.String())
}

// commands are those of a block: without comments.
func (b block) commands() (all []string) {
	for line := range strings.Lines(b.text) {
		command, _, _ := strings.Cut(line, " # ")
		if command = strings.TrimSpace(command); command != "" {
			all = append(all, command)
		}
	}
	return all
}

func TestEveryCommandOfThePagesDoesWhatItSays(t *testing.T) {
	t.Parallel()
	left := maps.Clone(trials)
	t.Run("page", func(t *testing.T) {
		for _, p := range pages(t) {
			for _, b := range p.blocks() {
				if b.language != "" && b.language != "sh" {
					continue
				}
				for _, command := range b.commands() {
					try := trials[command]
					_, first := left[command]
					delete(left, command)
					if try != nil && !first {
						continue // another page has it, too
					}
					t.Run(fmt.Sprintf("%s: %s", p.name, command), func(t *testing.T) {
						t.Parallel()
						if assert.NotNil(t, try, "say in trials what it is to do") {
							try(newStage(t), command)
						}
					})
				}
			}
		}
	})
	assert.Empty(t, left, "no page has these any more")
}

func TestEveryQueryOfThePagesIsExecuted(t *testing.T) {
	t.Parallel()
	conn := clitest.Connect(t, pgtest.DSN(t), "docs")
	mailbox := "; SELECT pglatch_turns.open_mailbox('chat', 'conversation=14', 100, 100, '0', false, '1 day')"
	_, err := conn.Exec(t.Context(), postgres.Schema("pglatch_once")+";"+turns.Schema()+mailbox, pgx.QueryExecModeSimpleProtocol)
	require.NoError(t, err)
	for _, p := range pages(t) {
		for _, b := range p.blocks() {
			if b.language == "sql" {
				_, err := conn.Exec(t.Context(), b.text)
				assert.NoError(t, err, "%s:%d", p.name, b.line)
			}
		}
	}
}
