package shardscmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/internal/cli/program"
	"github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/namespace"
)

func postgresFlags(f *pflag.FlagSet) program.OpenFunc[*group] {
	var table string
	f.StringVar(&table, "table", postgres.DefaultTable, "`table` that counts the terms of shards")
	return func(app *program.App, args []string) (*group, error) {
		n, err := groupOf(app, args[0])
		if err != nil {
			return nil, err
		}
		cc, err := app.ConnConfig()
		if err != nil {
			return nil, err
		}
		b, err := postgres.New(postgres.Config{ConnConfig: cc, Namespace: n, Table: table, Logger: app.Logger()})
		if err != nil {
			return nil, program.UsageError("%w", err)
		}
		return &group{name: n.Name(), place: program.Target(cc), backend: b, fail: postgresError}, nil
	}
}

// groupOf is the namespace that is the group, by its name or as name=number.
func groupOf(app *program.App, text string) (namespace.Namespace, error) {
	if strings.Contains(text, "=") {
		return program.ParseNamespace("GROUP", text)
	}
	n, ok := app.Namespaces().Named(text)
	if !ok {
		return n, program.UsageError("GROUP is %q, a namespace whose number is not known: say %s=NUMBER, or its number with --namespace or in PGLATCH_NAMESPACES", text, text)
	}
	return n, nil
}

// postgresError gives an error of the database its exit code.
func postgresError(ctx context.Context, err error) error {
	if table, ok := errors.AsType[*postgres.TableError](err); ok && table.Missing {
		err = fmt.Errorf("there are no tables of shards named %s: is it another database, or another --table? The nodes, or postgres.Schema in a migration, make them: %w", table.Table, table.Cause)
	}
	return program.Unavailable(ctx, err)
}
