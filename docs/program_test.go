package docs_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/gobuild"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// runs say what becomes of each whole program, by its page and its place among the page's programs.
var runs = map[string]func(t *testing.T, p *clitest.Program){
	"README.md 1": func(t *testing.T, p *clitest.Program) {
		t.Helper()
		assert.Zero(t, p.Wait())
		assert.Regexp(t, `nobody else works on customer 42, in any process\n.*<nil>\n$`, p.Stderr.String())
	},
	"docs/tutorials/first-lock.md 1": func(t *testing.T, p *clitest.Program) {
		t.Helper()
		assert.Zero(t, p.Wait(), p.Stderr.String())
		turns := regexp.MustCompile(`replica [12] (?:begins|ends)`).FindAllString(p.Stderr.String(), -1)
		if assert.Len(t, turns, 4, p.Stderr.String()) && turns[0] == "replica 1 begins" {
			assert.Equal(t, []string{"replica 1 begins", "replica 1 ends", "replica 2 begins", "replica 2 ends"}, turns)
		} else {
			assert.Equal(t, []string{"replica 2 begins", "replica 2 ends", "replica 1 begins", "replica 1 ends"}, turns)
		}
		assert.Equal(t, 2, strings.Count(p.Stderr.String(), ": <nil>\n"), p.Stderr.String())
	},
	"docs/tutorials/scheduler.md 1": func(t *testing.T, p *clitest.Program) {
		t.Helper()
		assert.Zero(t, p.Wait(), p.Stderr.String())
		did := regexp.MustCompile(`(node [123]): did it: true; run by (node [123]): RAN\n`).FindAllStringSubmatch(p.Stderr.String(), -1)
		require.Len(t, did, 1, p.Stderr.String())
		assert.Equal(t, did[0][1], did[0][2])
		assert.Equal(t, 1, strings.Count(p.Stderr.String(), " runs the job\n"), p.Stderr.String())
		assert.Equal(t, 2, strings.Count(p.Stderr.String(), "did it: false; run by "+did[0][1]+": RAN\n"), p.Stderr.String())
	},
	"docs/tutorials/turns.md 1": func(t *testing.T, p *clitest.Program) {
		t.Helper()
		assert.Zero(t, p.Wait(), p.Stderr.String())
		assert.Regexp(t, `replica [123] answers 3 messages\n`, p.Stderr.String())
		assert.Contains(t, p.Stderr.String(), `done: you said "hello / I need a flight / to Oslo"`)
		assert.Contains(t, p.Stderr.String(), "a message that comes again: true")
		assert.Regexp(t, `saved: you said "hello / I need a flight / to Oslo"\n.*saved: you said "thanks"\n$`, p.Stderr.String())
	},
	"docs/tutorials/fenced-write.md 1": func(t *testing.T, p *clitest.Program) {
		t.Helper()
		assert.Zero(t, p.Wait(), p.Stderr.String())
		for _, says := range []string{"the second token is greater: true", "writer 2: <nil>", "writer 1 is refused: true", "released: <nil>"} {
			assert.Contains(t, p.Stderr.String(), says)
		}
	},
	"docs/tutorials/leader.md 1": func(t *testing.T, p *clitest.Program) {
		t.Helper()
		p.Saying(&p.Stderr, "leads, in term 1.1; the guarded transaction: <nil>")
		p.Signal(syscall.SIGINT)
		assert.Zero(t, p.Wait())
		assert.Regexp(t, `ended: <nil>\n$`, p.Stderr.String())
	},
	"docs/tutorials/shards.md 1": func(t *testing.T, p *clitest.Program) {
		t.Helper()
		for _, shard := range []string{"acme", "globex", "initech"} {
			p.Saying(&p.Stderr, "works for "+shard+" in term 1.1; the guarded transaction: <nil>")
		}
		p.Signal(syscall.SIGINT)
		assert.Zero(t, p.Wait())
		assert.Regexp(t, `ended: <nil>\n$`, p.Stderr.String())
	},
	"docs/tutorials/lock-server.md 1": func(t *testing.T, p *clitest.Program) {
		t.Helper()
		assert.Zero(t, p.Wait())
		assert.Regexp(t, `the greatest it has seen: 1\n.*<nil>\n$`, p.Stderr.String())
	},
	"docs/coming-from/distributedlock.md 1": func(t *testing.T, p *clitest.Program) {
		t.Helper()
		assert.Zero(t, p.Wait())
		assert.Regexp(t, `under the locks \[.*search/1.*\]: <nil>\n.*ended: <nil>\n$`, p.Stderr.String())
	},
	"docs/coming-from/etcd-concurrency.md 1": func(t *testing.T, p *clitest.Program) {
		t.Helper()
		assert.Zero(t, p.Wait())
		assert.Regexp(t, `with fencing token 1\n.*ended: <nil>\n$`, p.Stderr.String())
	},
	"docs/coming-from/shedlock.md 1": func(t *testing.T, p *clitest.Program) {
		t.Helper()
		assert.Zero(t, p.Wait())
		assert.Regexp(t, `closes the books\n.*ran here: true, state: RAN, error: <nil>\n$`, p.Stderr.String())
	},
	"docs/coming-from/shedlock.md 2": func(t *testing.T, p *clitest.Program) {
		t.Helper()
		assert.Zero(t, p.Wait())
		assert.Regexp(t, `sends the invoices\n.*ran here: true, state: RAN, error: <nil>\n$`, p.Stderr.String())
	},
	"docs/coming-from/with_advisory_lock.md 1": func(t *testing.T, p *clitest.Program) {
		t.Helper()
		assert.Zero(t, p.Wait())
		assert.Regexp(t, `under the lock .*\n.*ended: <nil>\n$`, p.Stderr.String())
	},
}

func TestEveryProgramOfThePagesRuns(t *testing.T) {
	t.Parallel()
	left := maps.Clone(runs)
	dsn := pgtest.DSN(t) // one, as for a newcomer who tries them all: they do not disturb each other
	t.Run("page", func(t *testing.T) {
		for _, p := range pages(t) {
			n := 0
			for _, b := range p.blocks() {
				if b.language != "go" || !strings.HasPrefix(b.text, "package ") {
					continue
				}
				n++
				name := fmt.Sprintf("%s %d", p.name, n)
				judge := runs[name]
				delete(left, name)
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					if !assert.NotNil(t, judge, "say in runs what becomes of it") {
						return
					}
					_, address := clitest.Serve(t, clitest.At(clitest.Nowhere), "--store", "sqlite:"+filepath.Join(t.TempDir(), "locks.db"))
					text := strings.NewReplacer("postgres://localhost/shop", dsn, "http://127.0.0.1:8080", "http://"+address).Replace(b.text)
					program := filepath.Join(t.TempDir(), "program")
					build(t, text, program)
					judge(t, clitest.StartCommand(t, nil, program))
				})
			}
		}
	})
	assert.Empty(t, left, "no page has these any more")
}

var created = regexp.MustCompile(`CREATE TABLE (?:IF NOT EXISTS )?([\w.]+)`)

func TestNoTwoProgramsOfThePagesMakeOneTable(t *testing.T) {
	t.Parallel()
	of := map[string]string{}
	for _, p := range pages(t) {
		for _, b := range p.blocks() {
			if b.language != "go" || !strings.HasPrefix(b.text, "package ") {
				continue
			}
			for _, m := range created.FindAllStringSubmatch(b.text, -1) {
				assert.Empty(t, of[m[1]], "%s makes the table %s, too", p.name, m[1])
				of[m[1]] = p.name
			}
		}
	}
	assert.GreaterOrEqual(t, len(of), 2, "the control: tables are found")
}

func TestEveryFragmentOfThePagesCompiles(t *testing.T) {
	t.Parallel()
	fragments := make(map[string]string)
	for _, p := range pages(t) {
		for _, b := range p.blocks() {
			if b.language == "go" && !strings.HasPrefix(b.text, "package ") {
				fragments[fmt.Sprintf("%s:%d", p.name, b.line)] = around(b.text)
			}
		}
	}
	require.NotEmpty(t, fragments)
	for name, complaints := range compile(t, fragments) {
		assert.Fail(t, "does not compile", "%s: %s\n%s", name, strings.Join(complaints, ""), fragments[name])
	}
}

func TestAFragmentThatDoesNotCompileIsFound(t *testing.T) {
	t.Parallel()
	found := compile(t, map[string]string{
		"an argument is missing": around("err := locker.Do(ctx, key)\n"),
		"no such method":         around("err := locker.NoSuchMethod(ctx, key)\n"),
		"right":                  around("err := locker.Do(ctx, key, work)\n"),
	})
	assert.Contains(t, found, "an argument is missing")
	assert.Contains(t, found, "no such method")
	assert.Len(t, found, 2)
}

// known are the packages that fragments use without importing them.
var known = []string{
	"context", "database/sql", "errors", "fmt", "log", "log/slog", "net/http", "os", "testing", "time",
	"github.com/jackc/pgx/v5", "github.com/jackc/pgx/v5/pgxpool",
	ours + "advisory", ours + "leader", ours + "leader/leased", ours + "leader/postgres", ours + "lease", ours + "lease/leasehttp",
	ours + "lease/sqlite", ours + "middleware", ours + "monitor", ours + "namespace", ours + "namespace/interop", ours + "once", ours + "turns",
	ours + "adapters/clientgolock", ours + "adapters/mutex", ours + "advisory/advisorytest", ours + "leader/leadertest", ours + "turns/turnstest",
	"entgo.io/ent/dialect/sql", "github.com/jmoiron/sqlx", "github.com/uptrace/bun", "gorm.io/gorm",
	"cirello.io/pglock", "github.com/bsm/redislock", "github.com/go-redsync/redsync/v4",
	"go.etcd.io/etcd/client/v3", "go.etcd.io/etcd/client/v3/concurrency",
	"k8s.io/client-go/kubernetes", "k8s.io/client-go/tools/leaderelection", "k8s.io/client-go/tools/leaderelection/resourcelock",
	"k8s.io/apimachinery/pkg/apis/meta/v1",
}

// nameOf is how a package of known is called in a fragment.
func nameOf(path string) string {
	switch path {
	case "github.com/jackc/pgx/v5":
		return "pgx"
	case "entgo.io/ent/dialect/sql":
		return "entsql"
	case "github.com/go-redsync/redsync/v4":
		return "redsync"
	case "go.etcd.io/etcd/client/v3":
		return "clientv3"
	case "k8s.io/apimachinery/pkg/apis/meta/v1":
		return "metav1"
	}
	return path[strings.LastIndex(path, "/")+1:]
}

const ours = "github.com/pglatch/pglatch/"

// given are the variables that fragments use without declaring them; they may declare their own.
const given = `
var (
	ctx              context.Context
	locker           *advisory.Locker
	key              namespace.Key
	pool             *pgxpool.Pool
	tx               pgx.Tx
	db               *sql.DB
	dsn              string
	work             func(context.Context) error
	store            lease.Store
	mux              *http.ServeMux
	handler          http.Handler
	runner           *once.Runner
	tick, introduced time.Time
	schedule         interface{ Next(time.Time) time.Time }
	closeTheDay      func(context.Context, time.Time) error
	Conversations    namespace.Namespace
	chat             *turns.Mailbox
	t                *turns.Turn
	ticket           turns.Ticket
	webhookID        string
	body, reply      []byte
	answer           func(context.Context, []turns.Message) ([]byte, error)
	save             func(context.Context, pgx.Tx, []byte) error
)
`

// named says in a fragment which package it means, of several of one name.
var named = regexp.MustCompile(`// package ([\w/]+)\n`)

// around makes a package of a fragment, which is declarations or statements.
func around(fragment string) string {
	body := given + "func _() error {\n" + fragment + "\nreturn nil\n}\n"
	if _, err := parser.ParseFile(token.NewFileSet(), "", "package p\n"+fragment, parser.SkipObjectResolution); err == nil {
		body = fragment
	}
	var imports strings.Builder
	imported := map[string]bool{}
	paths := known
	for _, m := range named.FindAllStringSubmatch(fragment, -1) {
		paths = append([]string{ours + m[1]}, paths...)
	}
	for _, path := range paths {
		name := nameOf(path)
		if imported[name] {
			continue
		}
		imported[name] = true
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(body) {
			fmt.Fprintf(&imports, "import %s %q\n", name, path)
		}
	}
	return "package fragment\n" + imports.String() + body
}

// unused is no fault of a fragment.
var unused = regexp.MustCompile(`declared and not used|imported and not used`)

// build makes a program in the first module of ours that has its imports.
func build(t *testing.T, text, program string) {
	t.Helper()
	output := goBuild(t, moduleOf(t, text), map[string]string{"program": text}, "-o", program)
	require.Empty(t, output, text)
}

// compile returns what the compiler says of the fragments that it refuses, by their names. All fragments of a module are
// compiled by one command, and none is linked.
func compile(t *testing.T, fragments map[string]string) (complaints map[string][]string) {
	t.Helper()
	names := slices.Sorted(maps.Keys(fragments))
	modules := make(map[string]map[string]string)
	for i, name := range names {
		module := moduleOf(t, fragments[name])
		if modules[module] == nil {
			modules[module] = make(map[string]string)
		}
		modules[module][fmt.Sprintf("fragment%d", i)] = fragments[name]
	}
	complaints = make(map[string][]string)
	place := regexp.MustCompile(`fragment(\d+)(?:/main)?\.go`)
	for module, packages := range modules {
		last := ""
		for line := range strings.Lines(goBuild(t, module, packages)) {
			m := place.FindStringSubmatch(line)
			if strings.HasPrefix(line, "#") || unused.MatchString(line) || strings.HasPrefix(line, "go: downloading ") {
				continue
			}
			if m != nil {
				i, err := strconv.Atoi(m[1])
				require.NoError(t, err)
				last = names[i]
			}
			require.NotEmpty(t, last, "the build failed in %s: %s", module, line)
			complaints[last] = append(complaints[last], line)
		}
	}
	return complaints
}

// goBuild compiles packages of one file each, and returns what go says if it fails. They are in no directory but in the
// build's overlay, so that they change no module.
func goBuild(t *testing.T, module string, packages map[string]string, flags ...string) (output string) {
	t.Helper()
	dir := t.TempDir()
	files := make(map[string]string)
	for name, text := range packages {
		source := filepath.Join(dir, name+".go")
		require.NoError(t, os.WriteFile(source, []byte(text), 0o600))
		files[filepath.Join(module, "of_a_page", name, "main.go")] = source
	}
	replace, err := json.Marshal(map[string]any{"Replace": files})
	require.NoError(t, err)
	overlay := filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(overlay, replace, 0o600))
	args := append([]string{"-overlay", overlay, "-gcflags=-e"}, flags...)
	command := gobuild.Command(t.Context(), append(args, "./of_a_page/...")...)
	command.Dir = module
	said, err := command.CombinedOutput()
	if err == nil {
		return ""
	}
	return cmp.Or(string(said), err.Error()+"\n")
}

// moduleOf is the root module, or the nested one that is in an import or requires what is imported.
func moduleOf(t *testing.T, text string) (dir string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", text, parser.ImportsOnly)
	require.NoError(t, err, text)
	var imports []string
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") {
			imports = append(imports, path)
		}
	}
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	var mods []string
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "go.mod" {
			mods = append(mods, strings.TrimPrefix(path, root+"/"))
		}
		return err
	}))
	slices.SortStableFunc(mods, func(a, b string) int { return strings.Count(a, "/") - strings.Count(b, "/") }) // the root first
	for _, mod := range mods {
		content, err := os.ReadFile(filepath.Join(root, mod))
		require.NoError(t, err)
		if !slices.ContainsFunc(imports, func(path string) bool { return !provides(string(content), mods, path) }) {
			return filepath.Join(root, filepath.Dir(mod))
		}
	}
	require.Fail(t, "no module requires all that the program imports", "%v", imports)
	return ""
}

// provides tells whether a module has a package, or requires a module that has it.
func provides(mod string, mods []string, path string) bool {
	rest, isOurs := strings.CutPrefix(path, ours)
	if isOurs {
		owner := strings.TrimSuffix(ours, "/")
		for _, other := range mods {
			if dir := filepath.Dir(other); dir != "." && (rest == dir || strings.HasPrefix(rest, dir+"/")) {
				owner = ours + dir
			}
		}
		path = owner
	}
	for _, m := range regexp.MustCompile(`(?m)^(?:module|require|)\s*([\w.-]+\.[\w./-]+)(?: v\S+( // indirect)?)?$`).FindAllStringSubmatch(mod, -1) {
		if path == m[1] || !isOurs && strings.HasPrefix(path, m[1]+"/") {
			return true
		}
	}
	return false
}
