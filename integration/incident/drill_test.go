//go:build integration

package incident

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/faultproxy"
	"github.com/pglatch/pglatch/internal/test/gobuild"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/internal/test/replay"
	"github.com/pglatch/pglatch/internal/test/trace"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/leader/shards"
	shardspg "github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/spec/check"
)

// patience is how long a fault may take to be named on a busy machine; on a quiet one it is 5 s.
const patience = await.Patience

// A desk is what somebody on call has open.
type desk struct {
	t       *testing.T
	page    string // its URL
	dsn     string
	command string // pglatch
	run     *replay.Run
}

func openDesk(t *testing.T, dsn string) desk {
	t.Helper()
	names, err := namespace.NewSet(orders, jobs)
	require.NoError(t, err)
	m, err := monitor.Open(monitor.Config{DSN: dsn, Namespaces: names, Record: 500 * time.Millisecond, LongHold: 3 * time.Second})
	require.NoError(t, err)
	server := httptest.NewServer(m.Page())
	t.Cleanup(func() { server.Close(); m.Close() })
	command := filepath.Join(t.TempDir(), "pglatch")
	require.NoError(t, gobuild.Program(t.Context(), "../../cmd/pglatch", command))
	return desk{t, server.URL + "/", dsn, command, replay.Start(t, "incident")}
}

// said writes that a tool said a verdict.
func (d desk) said(tool, verdict string, words ...string) {
	d.run.Writer().Emit(trace.Event{Kind: trace.Verdict, Text: verdict, To: tool, Words: words})
}

func (d desk) get(path string) string {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, d.page+path, nil)
	require.NoError(d.t, err)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(d.t, err)
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	require.NoError(d.t, err)
	return string(body)
}

// named waits until a verdict is on the page, with words that name what it is about, and in
// the metric, and until the command line says it too.
func (d desk) named(verdict string, words ...string) {
	d.t.Helper()
	begin := time.Now()
	defer func() {
		if d.t.Failed() {
			d.t.Logf("not %s %q: %s", verdict, words, d.get("verdicts"))
		}
	}()
	await.Until(d.t, patience, func() bool {
		var told struct {
			Verdicts []monitor.Verdict `json:"verdicts"`
		}
		require.NoError(d.t, json.Unmarshal([]byte(d.get("verdicts")), &told))
		// On a busy machine a process may be silent for a moment, and the verdict gone with what it answered.
		return slices.ContainsFunc(told.Verdicts, func(v monitor.Verdict) bool {
			return v.Name == verdict && contains(v.Key+v.Subject+v.Text+strings.Join(v.Evidence, ""), words...)
		}) && counted(d.get("metrics"), verdict) && contains(d.get(""), append(words, verdict)...)
	}, func() string { return verdict })
	d.said(check.Page, verdict, words...)
	d.t.Logf("%s: %v", verdict, time.Since(begin).Round(100*time.Millisecond))
}

// counted reports whether the metrics have a verdict, of whatever severity.
func counted(metrics, verdict string) bool {
	return slices.ContainsFunc(strings.Split(metrics, "\n"), func(line string) bool {
		return strings.HasPrefix(line, `pglatch_verdict{name="`+verdict+`",`) && !strings.HasSuffix(line, "} 0")
	})
}

// contains reports whether a text has all words.
func contains(text string, words ...string) bool {
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}

// listed waits until the command line names a verdict too, in two seconds of looking.
func (d desk) listed(verdict string, words ...string) {
	d.t.Helper()
	said := ""
	for end := time.Now().Add(patience); !contains(said, append(words, verdict)...); {
		require.True(d.t, time.Now().Before(end), "%s is not in %s", verdict, said)
		cmd := exec.CommandContext(d.t.Context(), d.command, "verdicts", "--longer-than", "3s")
		cmd.Env = append(os.Environ(), "DATABASE_URL="+d.dsn, "PGLATCH_NAMESPACES=order=1,job=2")
		out, err := cmd.CombinedOutput()
		if strings.Contains(string(out), "did not answer within") { // a busy machine
			continue
		}
		require.NoError(d.t, err, string(out))
		said = string(out)
	}
	d.said(check.Command, verdict, words...)
}

// quiet waits until a verdict is not there.
func (d desk) quiet(verdict string) {
	d.t.Helper()
	await.Until(d.t, patience, func() bool {
		return !counted(d.get("metrics"), verdict)
	}, func() string { return verdict })
	d.said(check.Absent, verdict)
}

func TestEachFaultOfAFleetIsNamed(t *testing.T) {
	server := pgtest.StartServer(t, pgserver.Options{Settings: map[string]string{"max_connections": "200"}})
	dsn := server.DSN("postgres")
	d := openDesk(t, dsn)

	proxy, err := faultproxy.New(t.Context(), address(t, dsn))
	require.NoError(t, err)
	t.Cleanup(proxy.Close)
	through, err := proxy.URL(dsn)
	require.NoError(t, err)

	billing, shipping, stock := d.start("billing", dsn), d.start("shipping", dsn), d.start("stock", dsn)
	scheduler := d.start("scheduler", through)
	scheduler.tell("lead")
	for _, p := range []*process{billing, shipping, stock} {
		p.tell("hold " + map[string]string{"billing": "101", "shipping": "102", "stock": "103"}[p.name])
	}
	listening(t, dsn, 4)
	for _, verdict := range []string{"deadlock", "holder-silent", "no-leader", "pooler"} {
		d.quiet(verdict)
	}

	billing.tell("hold 1")
	shipping.tell("want 1")
	d.named("held-long", "order/1", "billing")
	d.listed("held-long", "order/1", "billing")

	billing.tell("hold 4")
	stock.tell("hold 5")
	billing.tell("cross 4 5")
	stock.tell("cross 5 4")
	d.named("deadlock", "order/4", "order/5", "billing", "stock")
	d.listed("deadlock", "order/4", "order/5", "billing", "stock")

	leak(t, server)
	d.run.Writer().Emit(trace.Event{Kind: trace.Fault, Who: "a client of the pooler", Key: "order/9", Text: "leak", To: trace.Begins})
	d.run.RequireRefused() // nobody has named it yet
	d.named("pooler", "order/9")
	d.listed("pooler", "order/9")

	d.run.Fault("scheduler", "silent network")
	proxy.Set(faultproxy.Hold)
	d.named("holder-silent", "job/1", "scheduler", "it may lead for up to")
	d.quiet("no-leader")                   // its lease is not over
	d.listed("holder-silent", "scheduler") // who looks for the first time cannot know that it led

	goesOn := d.run.Fault("stock", "stopped process")
	stock.Signal(syscall.SIGSTOP)
	d.named("holder-silent", "order/103", "stock")
	d.listed("holder-silent", "order/103", "stock")
	stock.Signal(syscall.SIGCONT)
	goesOn()
	d.run.RequireLegal(trace.Ask, trace.Acquired, trace.State, trace.Fault, trace.Verdict)
}

// leak takes a lock through a pooler that shares sessions, as a program does that has its own
// pg_advisory_lock, and goes away: the server's session keeps it.
func leak(t *testing.T, server *pgserver.Server) {
	t.Helper()
	cc, err := pgx.ParseConfig(service.PgBouncer(t, server, "pool_mode=transaction", "application_name_add_host=0"))
	require.NoError(t, err)
	cc.RuntimeParams["application_name"] = "shipping"
	cc.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(t.Context(), cc)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "SELECT pg_advisory_lock($1, $2)", int32(1), int32(9))
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
}

func address(t *testing.T, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	require.NoError(t, err)
	return u.Host
}

// listening waits until so many processes answer.
func listening(t *testing.T, dsn string, n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	await.Until(t, patience, func() bool {
		answers, err := introspect.Ask(t.Context(), conn, introspect.Question{})
		require.NoError(t, err)
		return len(answers.Answers) == n && len(answers.Silent) == 0
	})
}

var (
	orders = namespace.Must(1, "order")
	jobs   = namespace.Must(2, "job")
	// tenants is a group of shards.
	tenants = namespace.Must(3, "tenant")
)

// member is the role of a process of the fleet.
const member = "member"

type memberConfig struct {
	Name, DSN string
	Run       string // the directory for its events
}

func TestMain(m *testing.M) {
	proctest.Play(member, serve)
	proctest.Play(worker, work)
	pgtest.Main(m)
}

// serve is a process that carries out commands: "hold 7", "cross 7 8" wants order/8 under the lock on
// order/7, "lead" takes part in the election, "own" in the group of shards. It says "done" when it has begun.
func serve(ctx context.Context, c memberConfig) error {
	locker, err := advisory.Open(ctx, advisory.Config{
		DSN: c.DSN, Wait: time.Hour, SessionTTL: time.Minute, ApplicationName: c.Name, Answer: introspect.Config{Service: c.Name},
	})
	if err != nil {
		return err
	}
	w, err := trace.Open(c.Run, c.Name)
	if err != nil {
		return err
	}
	emit := func(kind trace.Kind, id string) { w.Emit(trace.Event{Kind: kind, Key: order(id).String(), Who: id}) }
	held := make(map[string]*advisory.Lock)
	fmt.Println("done")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		words := strings.Fields(in.Text())
		switch words[0] {
		case "hold":
			emit(trace.Ask, words[1])
			if held[words[1]], err = locker.Acquire(ctx, order(words[1])); err == nil {
				emit(trace.Acquired, words[1])
			}
		case "want":
			emit(trace.Ask, words[1])
			go func() { _, _ = locker.Acquire(ctx, order(words[1])) }()
		case "cross":
			under := held[words[1]].Context()
			emit(trace.Ask, words[2])
			go func() { _, _ = locker.Acquire(under, order(words[2])) }()
		case "lead":
			err = lead(ctx, c, w)
		case "own":
			err = own(ctx, c)
		}
		if err != nil {
			return err
		}
		fmt.Println("done")
	}
	return nil
}

func order(id string) namespace.Key {
	n, _ := strconv.ParseInt(id, 10, 64)
	return orders.ID(n)
}

// lead takes part in the election, and returns when it leads.
func lead(ctx context.Context, c memberConfig, w *trace.Writer) error {
	key := jobs.ID(1)
	backend, err := postgres.New(postgres.Config{DSN: c.DSN, Key: key, CreateTable: true, Answer: introspect.Config{Service: c.Name}})
	if err != nil {
		return err
	}
	leads := make(chan struct{})
	config := leader.Config{Name: "scheduler", Identity: c.Name, Backend: backend, LeaseDuration: time.Minute}
	config.Callbacks = w.Elector(leader.Config{Name: key.String()}).Then(leader.Callbacks{OnAcquired: func(leader.Term) { close(leads) }})
	e, err := leader.New(config)
	if err != nil {
		return err
	}
	if err := e.Start(ctx); err != nil {
		return err
	}
	<-leads
	return nil
}

// own takes part in a group of shards, and returns when it owns one.
func own(ctx context.Context, c memberConfig) error {
	backend, err := shardspg.New(shardspg.Config{DSN: c.DSN, Namespace: tenants, CreateTable: true, Answer: introspect.Config{Service: c.Name}})
	if err != nil {
		return err
	}
	node, err := shards.New(shards.Config{Name: "tenants", Identity: c.Name, Backend: backend, Count: 3, LeaseDuration: time.Minute})
	if err != nil {
		return err
	}
	owns := make(chan struct{}, 3)
	go func() {
		_ = node.Run(ctx, func(ctx context.Context, _ shards.Shard) error {
			owns <- struct{}{}
			<-ctx.Done()
			return nil
		})
	}()
	<-owns
	return nil
}

// A process is one of the fleet.
type process struct {
	*proctest.Process
	name string
}

func (d desk) start(name, dsn string) *process {
	d.t.Helper()
	p := &process{proctest.Start(d.t, proctest.As(d.t, member, memberConfig{name, dsn, d.run.Path()})), name}
	p.Expect("done")
	return p
}

// tell sends the process a command, and returns when it is done.
func (p *process) tell(command string) {
	p.Tell(command)
	p.Expect("done")
}
