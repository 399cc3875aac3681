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
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

var (
	orders = namespace.Must(1, "order")
	jobs   = namespace.Must(2, "job")
)

// member is the role of a process of the fleet.
const member = "member"

type memberConfig struct{ Name, DSN string }

func TestMain(m *testing.M) {
	proctest.Play(member, serve)
	pgtest.Main(m)
}

// serve is a process that carries out commands: "hold 7", "cross 7 8" wants order/8 under the lock on
// order/7, "lead" takes part in the election. It says "done" when it has begun.
func serve(ctx context.Context, c memberConfig) error {
	locker, err := advisory.Open(ctx, advisory.Config{
		DSN: c.DSN, Wait: time.Hour, SessionTTL: time.Minute, ApplicationName: c.Name, Answer: introspect.Config{Service: c.Name},
	})
	if err != nil {
		return err
	}
	held := make(map[string]*advisory.Lock)
	fmt.Println("done")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		words := strings.Fields(in.Text())
		switch words[0] {
		case "hold":
			held[words[1]], err = locker.Acquire(ctx, order(words[1]))
		case "want":
			go func() { _, _ = locker.Acquire(ctx, order(words[1])) }()
		case "cross":
			under := held[words[1]].Context()
			go func() { _, _ = locker.Acquire(under, order(words[2])) }()
		case "lead":
			err = lead(ctx, c.Name, c.DSN)
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

func lead(ctx context.Context, name, dsn string) error {
	backend, err := postgres.New(postgres.Config{DSN: dsn, Key: jobs.ID(1), CreateTable: true, Answer: introspect.Config{Service: name}})
	if err != nil {
		return err
	}
	e, err := leader.New(leader.Config{Name: "scheduler", Identity: name, Backend: backend, LeaseDuration: time.Minute})
	if err != nil {
		return err
	}
	return e.Start(ctx)
}

// A process is one of the fleet.
type process struct {
	*proctest.Process
	name string
}

func start(t *testing.T, name, dsn string) *process {
	t.Helper()
	p := &process{proctest.Start(t, proctest.As(t, member, memberConfig{name, dsn})), name}
	p.Expect("done")
	return p
}

// tell sends the process a command, and returns when it is done.
func (p *process) tell(command string) {
	p.Tell(command)
	p.Expect("done")
}
