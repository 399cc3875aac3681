package leadercmd

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/child"
	"github.com/pglatch/pglatch/cmd/internal/leasecmd"
	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/file"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/namespace"
)

// A Backend is a backend for "leader --backend".
type Backend struct {
	Name string
	// Flags adds the flags that only this backend has. It returns the function that makes an election from
	// them after parsing. It is called for each command.
	Flags func(*pflag.FlagSet) OpenFunc
}

// An OpenFunc returns the election that a command's arguments and flags name, without contacting it. Errors are
// usage errors.
type OpenFunc func(app *program.App, args []string) (*Election, error)

// An Election is the election that a command joins or observes.
type Election struct {
	Name    string // in logs, in documents and as PGLATCH_KEY
	Backend interface {
		leader.Backend
		driver.Inspector
	}
	Close func() // called when the Backend is no longer used; nil = nothing to close

	key *namespace.Key // nil = not a lock of PostgreSQL
}

func (e *Election) close() {
	if e.Close != nil {
		e.Close()
	}
}

// env returns the election's variables for the leader's command.
func (e *Election) env() []string {
	if e.key != nil {
		return child.KeyEnv(*e.key)
	}
	return []string{"PGLATCH_LOCK_HELD=true", "PGLATCH_KEY=" + e.Name}
}

// electionFlags select a command's election: the flag --backend, with the flags of each backend.
type electionFlags struct {
	name     string // of the chosen backend
	names    []string
	open     map[string]OpenFunc
	owner    map[string]string // the backend that owns a flag
	postgres postgresElection
}

const (
	postgresBackend   = "postgres"
	kubernetesBackend = "kubernetes" // only in its own program
)

// addFlags adds the flags. The first backend is the default.
func (e *electionFlags) addFlags(app *program.App, cmd *cobra.Command, more []Backend) {
	e.open, e.owner = make(map[string]OpenFunc), make(map[string]string)
	for _, backend := range append([]Backend{
		{Name: postgresBackend, Flags: e.postgres.flags},
		{Name: "lease", Flags: leasedFlags},
		{Name: "file", Flags: fileFlags},
	}, more...) {
		e.names = append(e.names, backend.Name)
		own := pflag.NewFlagSet(backend.Name, pflag.ContinueOnError)
		e.open[backend.Name] = backend.Flags(own)
		own.VisitAll(func(flag *pflag.Flag) {
			flag.Usage = backend.Name + ": " + flag.Usage
			e.owner[flag.Name] = backend.Name
		})
		cmd.Flags().AddFlagSet(own)
	}
	cmd.Flags().StringVar(&e.name, "backend", e.names[0], "`where` leadership lives: "+strings.Join(e.names, ", "))
	app.AddKeyFlags(cmd)
	for _, flag := range []string{ // of every command, or of leader run
		"database-url", "dsn", "database-url-file", "connect-timeout", "application-name", "key1", "key2", "namespace", "create-table", "guard-timeout",
	} {
		e.owner[flag] = postgresBackend
	}
}

// election returns the election that the flags and the arguments name; the caller closes it.
func (e *electionFlags) election(app *program.App, cmd *cobra.Command, args []string) (*Election, error) {
	open, known := e.open[e.name]
	switch {
	case !known && e.name == kubernetesBackend:
		return nil, program.UsageError("--backend %s is not in this program: use pglatch-kubernetes, of the module github.com/pglatch/pglatch/cmd/pglatch-kubernetes", e.name)
	case !known:
		return nil, program.UsageError("--backend is %q: use one of %s", e.name, strings.Join(e.names, ", "))
	}
	var err error
	cmd.Flags().Visit(func(flag *pflag.Flag) {
		if owner := e.owner[flag.Name]; err == nil && owner != "" && owner != e.name {
			err = program.UsageError("--%s is for --backend %s: leave it out with --backend %s", flag.Name, owner, e.name)
		}
	})
	if err != nil {
		return nil, err
	}
	return open(app, args)
}

// ElectionName is the single argument of backends that accept any text.
func ElectionName(args []string) (string, error) {
	if len(args) != 1 || args[0] == "" {
		return "", program.UsageError("give one NAME of an election (got %d arguments)", len(args))
	}
	return args[0], nil
}

func leasedFlags(f *pflag.FlagSet) OpenFunc {
	var server lockserver.ClientFlags
	server.AddFlags(f)
	return func(app *program.App, args []string) (*Election, error) {
		name, err := leasecmd.LockName(args)
		if err != nil {
			return nil, err
		}
		client, err := server.Client(app, 0)
		if err != nil {
			return nil, err
		}
		backend, err := leased.New(client, leased.Config{Name: name})
		if err != nil {
			client.Close()
			return nil, err
		}
		return &Election{Name: name, Backend: backend, Close: client.Close}, nil
	}
}

func fileFlags(f *pflag.FlagSet) OpenFunc {
	var path string
	var repair bool
	f.StringVar(&path, "file", "", "`path` of the election's file, in a directory that exists")
	f.BoolVar(&repair, "repair", false, "replace a corrupt file after one lease, and keep a copy")
	return func(_ *program.App, args []string) (*Election, error) {
		name, err := ElectionName(args)
		if err != nil {
			return nil, err
		}
		if path == "" {
			return nil, program.UsageError("--backend file needs --file, the path of the election's file")
		}
		backend := file.NewBackend(path)
		if repair {
			backend = backend.WithRepair()
		}
		return &Election{Name: name, Backend: backend}, nil
	}
}
