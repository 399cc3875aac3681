//go:build integration

package seams

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/test/clitest"
)

// commands are those that connect to PostgreSQL. Those that look for a lock, a holder or a session find none.
var commands = []entry{
	{"pglatch run", command("run -w 20s 1:1 -- true")},
	{"pglatch try", command("try 1:1")},
	{"pglatch ls", command("ls")},
	{"pglatch tree", command("tree")},
	{"pglatch verdicts", command("verdicts")},
	{"pglatch watch", whileHeld(serves(`"held"`, "watch"))},
	{"pglatch status", finds("status 1:1")},
	{"pglatch ask", finds("ask 1:1")},
	{"pglatch dump", finds("dump 1:1")},
	{"pglatch terminate", finds("terminate 999999 --yes")},
	{"pglatch doctor", command("doctor")},
	{"pglatch doctor --prove", proves},
	{"pglatch migrate", command("migrate")},
	{"pglatch leader run", command("leader run 1:7 --create-table --no-auto-reacquire -- true")},
	{"pglatch leader status", finds("leader status 1:7")},
	{"pglatch leader watch", serves("nobody leads", "leader watch 1:7")},
	{"pglatch leader resign", finds("leader resign 1:7")},
	{"pglatch shards ls", finds("shards ls tenant=7")},
	{"pglatch shards pin", finds("shards pin tenant=7 acme --remove")},
	{"pglatch shards drain", finds("shards drain tenant=7 nobody --force --undo")},
	{"pglatch turns ls", finds("turns ls")},
	{"pglatch turns show", finds("turns show agent/78")},
	{"pglatch turns interrupt", finds("turns interrupt agent/78")},
	{"pglatch turns retry", finds("turns retry agent/78")},
	{"pglatch turns skip", finds("turns skip agent/78 1")},
	{"pglatch turns purge", finds("turns purge agent/78 --yes")},
	{"pglatch serve locks", serves("msg=serving", "serve locks --store postgres --listen 127.0.0.1:0")},
	{"pglatch serve monitor", serves("msg=serving", "serve monitor --listen 127.0.0.1:0")},
	{"pglatch load", command("load --target lease --store postgres --clients 2 --duration 4s --locks 2")},
}

// elsewhere are the commands that connect to no database.
var elsewhere = []string{
	"completion", "help", "key", "leader verify", "version",
	"lease acquire", "lease adopt", "lease force-release", "lease get", "lease list", "lease release", "lease renew", "lease run",
}

// proves is doctor --prove. On a busy machine an answer can be late, which it says.
func proves(ctx context.Context, t *testing.T, s site) (err error) {
	t.Helper()
	for again := 0; again == 0 || again < 4 && code(75)(err); again++ {
		err = command("doctor --prove")(ctx, t, s)
	}
	return err
}

func TestEachCommandIsAnEntry(t *testing.T) {
	for _, leaf := range clitest.Leaves(t) {
		driven := slices.ContainsFunc(commands, func(e entry) bool { return e.name == "pglatch "+leaf })
		assert.NotEqual(t, driven, slices.Contains(elsewhere, leaf), "pglatch %s: make it an entry", leaf)
	}
}

// An exit is the exit code of a command that did not succeed.
type exit struct {
	code   int
	stderr string
}

func (e *exit) Error() string { return fmt.Sprintf("exit code %d: %s", e.code, e.stderr) }

func command(line string) useFunc {
	return func(_ context.Context, t *testing.T, s site) error {
		t.Helper()
		_, stderr, code := clitest.Run(t, clitest.At(s.dsn), strings.Fields(line)...)
		if code == 0 {
			return nil
		}
		return &exit{code, stderr}
	}
}

// finds is a command that ends with 3 if it finds nothing.
func finds(line string) useFunc {
	use := command(line)
	return func(ctx context.Context, t *testing.T, s site) error {
		t.Helper()
		err := use(ctx, t, s)
		if code(3)(err) {
			return nil
		}
		return err
	}
}

// serves is a command that says something, and runs until it gets a signal.
func serves(says, line string) useFunc {
	return func(ctx context.Context, t *testing.T, s site) error {
		t.Helper()
		p := clitest.Start(t, clitest.At(s.dsn), strings.Fields(line)...)
		ended := make(chan int, 1)
		go func() { ended <- p.Wait() }()
		for signaled := false; ; {
			select {
			case code := <-ended:
				if signaled && (code == 0 || code == 128+int(syscall.SIGTERM)) {
					return nil
				}
				return &exit{code, p.Stderr.String()}
			case <-ctx.Done():
				return fmt.Errorf("it does not say %q: %s%s", says, p.Stdout.String(), p.Stderr.String())
			case <-time.After(10 * time.Millisecond):
			}
			if !signaled && strings.Contains(p.Stdout.String()+p.Stderr.String(), says) {
				p.Signal(syscall.SIGTERM)
				signaled = true
			}
		}
	}
}
