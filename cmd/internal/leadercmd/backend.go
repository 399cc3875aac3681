package leadercmd

import (
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
type Backend = program.Backend[*Election]

// An OpenFunc makes an election from a command's flags and arguments.
type OpenFunc = program.OpenFunc[*Election]

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

// electionFlags select a command's election.
type electionFlags struct {
	program.Backends[*Election]
	postgres postgresElection
}

const (
	postgresBackend   = "postgres"
	kubernetesBackend = "kubernetes" // only in its own program
)

func (e *electionFlags) backends(more []Backend) []Backend {
	return append([]Backend{
		{Name: postgresBackend, Flags: e.postgres.flags},
		{Name: "lease", Flags: leasedFlags},
		{Name: "file", Flags: fileFlags},
	}, more...)
}

func (e *electionFlags) addFlags(app *program.App, cmd *cobra.Command, more []Backend) {
	e.AddFlags(cmd, "leadership lives", e.backends(more))
	app.AddKeyFlags(cmd)
	e.Own(postgresBackend, append(program.DatabaseFlags(), "key1", "key2", "create-table", "guard-timeout", "namespace")...)
}

// election returns the election that the flags and the arguments name; the caller closes it.
func (e *electionFlags) election(app *program.App, cmd *cobra.Command, args []string) (*Election, error) {
	if e.Name() == kubernetesBackend && !e.Has(kubernetesBackend) {
		return nil, program.UsageError("--backend %s is not in this program: use pglatch-kubernetes, of the module github.com/pglatch/pglatch/cmd/pglatch-kubernetes", e.Name())
	}
	return e.Open(app, cmd, args)
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
