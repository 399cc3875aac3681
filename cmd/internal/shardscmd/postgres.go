package shardscmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/namespace"
)

// Open returns a group on PostgreSQL, without I/O: by its namespace's name, or name=number. table counts the terms of
// its shards; "" = postgres.DefaultTable.
func Open(app *program.App, name, table string) (*Group, error) {
	n, err := groupOf(app, name)
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
	return &Group{n.Name(), program.Target(cc), b}, nil
}

// fail gives an error of the backend its exit code; nil stays nil.
func (g *Group) fail(ctx context.Context, err error) error {
	if missing, ok := errors.AsType[*postgres.TableError](err); ok && missing.Missing {
		return &program.ExitError{Code: program.ExitFree, Err: fmt.Errorf("%s has no table %s, or none of those beside it: nodes with Config.CreateTable make them, or "+
			"postgres.Schema of leader/shards in a migration; if nodes run, check the address of the database, and --table", g.place, missing.Table)}
	}
	return program.Unavailable(ctx, err)
}

// groupOf returns the namespace of the group, given by its name or as name=number.
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
