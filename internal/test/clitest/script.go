package clitest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/gobuild"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// Scripts runs each script in testdata/script as a subtest, in parallel with the other tests. A script is a list of commands, and their files: see
// https://pkg.go.dev/github.com/rogpeppe/go-internal/testscript. Beside the commands of that package, a script has:
//
//	database                     makes a database, and sets DATABASE_URL, DATABASE (its name), and MISSING (a URL without database)
//	server [SETTING=VALUE ...]   starts a PostgreSQL server, and sets these variables
//	standby                      starts a standby of the server, and sets these variables, and PRIMARY to the server's URL
//	shutdown, startup            stop and start the server
//	lockserver [TOKEN]           starts a lock server in this process, and sets PGLATCH_LOCK_SERVER
//	certificate FILE KEY         makes a certificate for 127.0.0.1
//	reserve                      sets ADDRESS, where programs can listen, one after the other
//	sql SESSION STATEMENT        executes a statement; the session's application_name is SESSION, its pid $SESSION
//	waits SESSION STATEMENT      is sql for a statement that waits for a lock until the script ends
//	held COUNT                   waits until sessions hold so many advisory locks
//	queued                       waits until a session waits for an advisory lock
//	depose                       terminates the session of a holder
//	pglatch ARGUMENT ...         runs pglatch, which exits with 0
//	exits CODE PROGRAM ...       runs a program, which exits with CODE
//	misuse TEXT ARGUMENT ...     runs pglatch, which exits with 64 and prints one line, with TEXT and without a secret
//	until PATTERN PROGRAM ...    runs a program again and again, until its output matches; "exits CODE" may precede PROGRAM
//	start NAME PROGRAM ...       starts a program in the background
//	says NAME PATTERN            waits until the program's output matches, and sets variables to the named groups
//	prints NAME PATTERN          is says for its standard output
//	silent NAME                  checks that its standard output is empty
//	signal NAME SIGNAL           sends a signal
//	ends NAME CODE               waits until the program exits with CODE; its output is that of the last command
//	gone PID ...                 waits until the processes have ended
//	match PATTERN                sets variables to the named groups, in the standard output of the last command
//
// Without a database, DATABASE_URL is $NOWHERE, where nothing listens. $SILENT is an address that accepts connections and never
// answers. Instead of a program, exits and until take "get URL": it prints the document, and exits with 0 or a status that is not 200.
//
// A pattern is a regular expression in which ^ and $ match at lines.
func Scripts(t *testing.T) {
	t.Helper()
	t.Parallel()
	const dir = "testdata/script"
	testscript.RunT(scriptT{t}, testscript.Params{
		Dir: dir, RequireUniqueNames: true, RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			t := env.T().(scriptT).T
			text, err := os.ReadFile(filepath.Join(dir, filepath.Base(t.Name())+".txtar"))
			require.NoError(t, err)
			newScript(t, env, string(text))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"database": command(0, 0, (*script).database), "server": command(0, 9, (*script).server), "lockserver": command(0, 1, (*script).lockServer),
			"standby": command(0, 0, (*script).standby), "shutdown": command(0, 0, (*script).shutdown), "startup": command(0, 0, (*script).startup),
			"certificate": command(2, 2, (*script).certificate), "reserve": command(0, 0, (*script).reserve), "sql": command(2, 2, (*script).sql), "waits": command(2, 2, (*script).waits), "held": command(1, 1, (*script).held),
			"queued": command(0, 0, (*script).queued), "depose": command(0, 0, (*script).depose),
			"pglatch": command(0, 99, (*script).pglatch), "exits": command(2, 99, (*script).exits), "misuse": command(1, 99, (*script).misuse),
			"until": command(2, 99, (*script).until), "start": command(2, 99, (*script).start), "says": command(2, 2, (*script).says),
			"prints": command(2, 2, (*script).prints), "silent": command(1, 1, (*script).silent), "signal": command(2, 2, (*script).signal),
			"ends": command(2, 2, (*script).ends), "gone": command(1, 9, (*script).gone), "match": command(1, 1, (*script).match),
		},
	})
}

// A scriptT makes a test of each script.
type scriptT struct{ *testing.T }

func (t scriptT) Run(name string, f func(testscript.T)) {
	t.T.Run(name, func(t *testing.T) { f(scriptT{t}) })
}

func (scriptT) Verbose() bool { return testing.Verbose() }

type scriptKey struct{}

// A script is one that runs.
type script struct {
	*testscript.TestScript
	t         *testing.T
	variables []string // the names of those that programs get
	programs  map[string]*Program
	sessions  map[string]*pgx.Conn
	postgres  *pgserver.Server // that server started
}

var (
	assignments = regexp.MustCompile(`(?m)^(?:\[.*\] )?env (.*)$`)
	assignment  = regexp.MustCompile(`(?:^|['\s])([A-Za-z_]\w*)=`)
)

func newScript(t *testing.T, env *testscript.Env, text string) {
	t.Helper()
	heedInterrupts(t)
	s := &script{t: t, programs: make(map[string]*Program), sessions: make(map[string]*pgx.Conn)}
	env.Values[scriptKey{}] = s
	env.Setenv("PATH", filepath.Dir(Binary)+string(os.PathListSeparator)+env.Getenv("PATH"))
	env.Setenv("GORACE", gobuild.RaceOptions)
	env.Setenv("DATABASE_URL", Nowhere)
	env.Setenv("NOWHERE", Nowhere)
	env.Setenv("SILENT", SilentHost(t)) // an address that accepts connections and never answers
	for _, v := range env.Vars {
		if name, _, _ := strings.Cut(v, "="); regexp.MustCompile(`^[A-Za-z_]\w*$`).MatchString(name) {
			s.variables = append(s.variables, name)
		}
	}
	for _, line := range assignments.FindAllStringSubmatch(text, -1) {
		for _, v := range assignment.FindAllStringSubmatch(line[1], -1) {
			s.variables = append(s.variables, v[1])
		}
	}
	s.variables = append(s.variables, "PGLATCH_LOCK_SERVER")
	env.Defer(func() { // the script's directory is removed after this
		for _, p := range s.programs {
			p.Kill()
		}
	})
}

// command makes a command of a script with that many arguments.
func command(least, most int, run func(*script, []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg {
			ts.Fatalf("this command has no negation: use exits")
		}
		if len(args) < least || len(args) > most {
			ts.Fatalf("it has %d arguments: use %d to %d", len(args), least, most)
		}
		s := ts.Value(scriptKey{}).(*script)
		s.TestScript = ts
		run(s, args)
	}
}

// environ is what programs get.
func (s *script) environ() (all []string) {
	slices.Sort(s.variables)
	for _, name := range slices.Compact(s.variables) {
		if value := s.Getenv(name); value != "" {
			all = append(all, name+"="+value)
		}
	}
	return all
}
