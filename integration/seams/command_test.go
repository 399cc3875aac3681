//go:build integration

package seams

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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

// driven are the packages whose functions the entries call, and the name by which this package imports them.
var driven = map[string]string{
	"advisory": "advisory", "leader": "leader", "leader/postgres": "leaderpg", "leader/shards": "shards", "leader/shards/postgres": "shardspg",
	"lease": "lease", "lease/postgres": "leasepg", "lease/leasehttp": "leasehttp", "once": "once", "once/postgres": "oncepg",
	"turns":   "turns",
	"monitor": "monitor", "introspect": "introspect", "adapters/mutex": "mutex",
}

// behind are methods that other entries call: an Elector or a node those of its backend, a Runner or a lock server those of its store.
var behind = []string{
	"leaderpg.Backend.TryAcquire", "leaderpg.Backend.Renew", "leaderpg.Backend.Release", "leaderpg.Backend.Wait", "leaderpg.Backend.Leader",
	"leaderpg.Backend.Observe", "leaderpg.Backend.Contested", "shardspg.Backend.Open", "shardspg.Backend.Observe",
	"oncepg.Store.Claim", "oncepg.Store.Renew", "oncepg.Store.End", "oncepg.Store.Look", "leasepg.Store.Sweep", "leasepg.Store.Listen",
	"turns.Turn.CommitSQL", // as Commit; see package turns
}

// A function or method that takes a context and can fail is called by an entry, or behind one. Methods are
// told apart by their names only.
func TestEachCallIsAnEntry(t *testing.T) {
	here, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	called := map[string]bool{}
	for _, file := range here {
		ast.Inspect(parse(t, file), func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				called[s.Sel.Name] = true
				if of, ok := s.X.(*ast.Ident); ok {
					called[of.Name+"."+s.Sel.Name] = true
				}
			}
			return true
		})
	}
	for dir, name := range driven {
		files, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(dir), "*.go"))
		require.NoError(t, err)
		found := map[string]string{}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				maps.Copy(found, fallible(parse(t, file), name))
			}
		}
		require.NotEmpty(t, found, "%s has functions", dir)
		for full, short := range found {
			if !slices.Contains(behind, full) {
				assert.True(t, called[short], "%s: make it an entry, or name it in behind", full)
			}
		}
	}
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	f, err := parser.ParseFile(token.NewFileSet(), file, text, 0)
	require.NoError(t, err)
	return f
}

// fallible returns the exported functions and methods that take a context first and return an error, and how a
// call of each is written: "advisory.Open", and "Acquire" for a method.
func fallible(f *ast.File, pkg string) map[string]string {
	found := map[string]string{}
	for _, d := range f.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || !fn.Name.IsExported() || !takesContext(fn.Type) || !fails(fn.Type) {
			continue
		}
		full := pkg + "." + fn.Name.Name
		if fn.Recv == nil {
			found[full] = full
			continue
		}
		star, ok := fn.Recv.List[0].Type.(*ast.StarExpr)
		if !ok {
			continue // a value, such as options, has the functions of its package
		}
		if of, ok := star.X.(*ast.Ident); ok && of.IsExported() {
			found[pkg+"."+of.Name+"."+fn.Name.Name] = fn.Name.Name
		}
	}
	return found
}

func takesContext(f *ast.FuncType) bool {
	if len(f.Params.List) == 0 {
		return false
	}
	s, ok := f.Params.List[0].Type.(*ast.SelectorExpr)
	return ok && s.Sel.Name == "Context"
}

// fails reports whether a function returns an error, by itself or with each element of a sequence.
func fails(f *ast.FuncType) (yes bool) {
	if f.Results == nil {
		return false
	}
	ast.Inspect(f.Results, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		yes = yes || ok && id.Name == "error"
		return true
	})
	return yes
}
