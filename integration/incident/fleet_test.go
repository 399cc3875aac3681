//go:build integration

package incident

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/internal/test/trace"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/leader/shards"
	shardspg "github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/namespace"
)

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
