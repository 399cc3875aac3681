package browser_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// serves is the role of a process of the fleet.
const serves = "service"

type processConfig struct{ Name, DSN string }

var (
	orders    = namespace.Must(1, "order")
	customers = namespace.Must(2, "customer")
	reports   = namespace.Must(3, "report")
)

// A process is one of the fleet.
type process struct{ *proctest.Process }

// start starts one, which does what do says until the test ends.
func start(t *testing.T, dsn, name string) process {
	t.Helper()
	return process{proctest.Start(t, proctest.As(t, serves, processConfig{name, dsn}))}
}

// do has the process do something, and returns when it has begun.
func (p process) do(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	p.Tell(line)
	p.Expect("ok " + line)
}

// A member is the other side: what a process does.
type member struct {
	locker *advisory.Locker
	name   string
	dsn    string
	work   sync.WaitGroup
	held   map[string]*advisory.Lock
}

// runProcess is the program of a process.
func runProcess(ctx context.Context, c processConfig) error {
	locker, err := advisory.Open(ctx, advisory.Config{DSN: c.DSN, ApplicationName: c.Name, MaxConns: 40, Wait: advisory.NoTimeout, Answer: answer(c.Name)})
	if err != nil {
		return err
	}
	m := &member{locker: locker, name: c.Name, dsn: c.DSN, held: map[string]*advisory.Lock{}}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if err := m.do(ctx, in.Text()); err != nil {
			return fmt.Errorf("%s: %w", in.Text(), err)
		}
		fmt.Println("ok " + in.Text())
	}
	return nil
}

// answer says which program it plays.
func answer(name string) introspect.Config {
	service, _, _ := strings.Cut(name, "-")
	return introspect.Config{Service: service, Version: "v1.8.2"}
}

func parse(text string) (namespace.Key, error) {
	set, err := namespace.NewSet(orders, customers, reports)
	if err != nil {
		return namespace.Key{}, err
	}
	return set.Parse(text)
}

// do does "hold KEY [LABEL]", "wait KEY [holding KEY] [LABEL]", "release KEY" or "lead".
func (m *member) do(ctx context.Context, line string) error {
	words := strings.Fields(line)
	if words[0] == "lead" {
		return m.lead(ctx)
	}
	key, err := parse(words[1])
	if err != nil {
		return err
	}
	label := ""
	switch words[0] {
	case "hold":
		label = strings.Join(words[2:], " ")
		lock, err := m.locker.With(advisory.Options{Label: label}).Acquire(ctx, key)
		m.held[words[1]] = lock
		return err
	case "release":
		return m.held[words[1]].Release()
	case "wait":
		rest := words[2:]
		if len(rest) > 1 && rest[0] == "holding" {
			ctx, rest = m.held[rest[1]].Context(), rest[2:]
		}
		label = strings.Join(rest, " ")
		m.work.Go(func() {
			if lock, err := m.locker.With(advisory.Options{Label: label}).Acquire(ctx, key); err == nil {
				_ = lock.Release()
			}
		})
		return nil
	}
	return errors.New("nothing that a process does")
}

// lead takes part in the election "scheduler".
func (m *member) lead(ctx context.Context) error {
	backend, err := postgres.New(postgres.Config{DSN: m.dsn, Key: namespace.Pair(9, 100), CreateTable: true})
	if err != nil {
		return err
	}
	elector, err := leader.New(leader.Config{Name: "scheduler", Identity: m.name, Backend: backend})
	if err != nil {
		return err
	}
	return elector.Start(ctx)
}
