// Package leadercmd contains the commands about elections: leader, and migrate for its table.
package leadercmd

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/namespace"
)

const help = `Take part in an election, or look at one.

NAME is the election. --backend is where its leadership is kept:

  postgres    in a lock of a database: NAME is a KEY (namespace/entity, 100:1 or @12345)
  lease       in a lease of a lock server: NAME is the lock's name. The server is that of
              --server or PGLATCH_LOCK_SERVER, else http://127.0.0.1:8080
  file        in the file of --file, for the processes of one host: NAME is only a label
  kubernetes  in a Lease of a cluster: NAME is the Lease's name. Only the program
              pglatch-kubernetes has this backend

A flag whose description begins with one of these names is for that backend only. The flags
for keys, namespaces and the database are for postgres only.`

// New returns the command leader, with its own backends and those of the program.
func New(app *program.App, more []Backend) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "leader",
		Short: "Take part in an election, or look at one",
		Long:  help,
	}
	cmd.AddCommand(newRun(app, more), newStatus(app, more), newWatch(app, more), newResign(app), newVerify(app))
	return cmd
}

// postgresElection are the flags of elections in a database.
type postgresElection struct {
	table   string
	noTerms bool
	// Only leader run has flags for these.
	create, await bool
	guardTimeout  time.Duration
	allowResign   bool
}

func (e *postgresElection) flags(f *pflag.FlagSet) OpenFunc {
	f.StringVar(&e.table, "table", postgres.DefaultTable, "`table` that counts the terms")
	f.BoolVar(&e.noTerms, "no-terms", false, "run without terms and their table")
	return func(app *program.App, args []string) (*Election, error) {
		key, err := app.Key(args)
		if err != nil {
			return nil, err
		}
		backend, err := e.backend(app, key)
		if err != nil {
			return nil, err
		}
		return &Election{Name: key.String(), Backend: backend, key: &key}, nil
	}
}

// backend returns the election's backend, which has not connected yet.
func (e *postgresElection) backend(app *program.App, key namespace.Key) (*postgres.Backend, error) {
	cc, err := app.ConnConfig()
	if err != nil {
		return nil, err
	}
	return postgres.New(postgres.Config{
		ConnConfig: cc, Key: key, Table: e.table, NoTerms: e.noTerms, CreateTable: e.create, AwaitTable: e.await,
		GuardTimeout: e.guardTimeout, Answer: introspect.Config{Service: lookup.CommandService, AllowResign: e.allowResign}, Logger: app.Logger(),
	})
}
