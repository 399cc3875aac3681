package turnscmd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

// A post has the mailboxes of a database.
type post struct {
	pool  *pgxpool.Pool
	place string // the database, for people
	names []turns.Name
}

// with opens the mailboxes of the database, and calls do.
func with(ctx context.Context, app *program.App, do func(*post) error) error {
	cc, err := app.ConnConfig()
	if err != nil {
		return err
	}
	pool, err := program.NewPool(ctx, cc, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	p := &post{pool: pool, place: program.Target(cc)}
	if p.names, err = turns.Names(ctx, pool); err != nil {
		return p.fail(ctx, err)
	}
	return do(p)
}

// In calls do with the mailbox of this name, and the namespace of its entities. Its errors have exit codes.
func In(ctx context.Context, app *program.App, mailbox string, do func(*turns.Mailbox, namespace.Namespace) error) error {
	return with(ctx, app, func(p *post) error {
		name, err := p.named(mailbox)
		if err != nil {
			return err
		}
		box, err := p.open(ctx, name)
		if err != nil {
			return err
		}
		return p.fail(ctx, do(box, name.Namespace))
	})
}

// fail gives an error of a mailbox its exit code; nil stays nil.
func (p *post) fail(ctx context.Context, err error) error {
	_, known := errors.AsType[*program.ExitError](err)
	switch {
	case known:
		return err
	case missing(err):
		return &program.ExitError{Code: program.ExitFree, Err: fmt.Errorf("%s has no mailbox: Mailbox.Migrate makes one, or turns.Schema in a migration and then Mailbox.Serve; "+
			"if programs serve one, check the address of the database", p.place)}
	case errors.Is(err, turns.ErrNotFound), errors.Is(err, turns.ErrNotRunning):
		return &program.ExitError{Code: program.ExitFree, Err: err}
	case errors.Is(err, turns.ErrInvalid):
		return program.UsageError("%w", err)
	}
	err = program.Unavailable(ctx, err)
	if refused, ok := errors.AsType[*session.RefusedError](err); ok && sqlstate.Of(err) == sqlstate.Privilege {
		refused.Remedy = "GRANT the role the rights of a server: turns.Grants has the SQL"
	}
	return err
}

// missing reports whether an error says that the schema is not there.
func missing(err error) bool {
	code := sqlstate.Of(err)
	return code == sqlstate.UndefinedTable || code == sqlstate.InvalidSchema
}

// open returns a mailbox.
func (p *post) open(ctx context.Context, name turns.Name) (*turns.Mailbox, error) {
	box, err := turns.Open(ctx, turns.Config{Pool: p.pool, Name: name.Name, Namespace: name.Namespace})
	return box, p.fail(ctx, err)
}

// named returns the mailbox of this name.
func (p *post) named(name string) (turns.Name, error) {
	i := slices.IndexFunc(p.names, func(n turns.Name) bool { return n.Name == name })
	if i < 0 {
		return turns.Name{}, &program.ExitError{Code: program.ExitFree, Err: fmt.Errorf("there is no mailbox %q in %s: it has %s", name, p.place, list(p.names))}
	}
	return p.names[i], nil
}

// list names mailboxes, for people.
func list(names []turns.Name) string {
	if len(names) == 0 {
		return "none"
	}
	texts := make([]string, 0, len(names))
	for _, n := range names {
		texts = append(texts, program.Printable(fmt.Sprintf("%s (%s)", n.Name, n.Namespace)))
	}
	return strings.Join(texts, ", ")
}

// A target is the entity that the argument KEY of a command names.
type target struct {
	*turns.Mailbox
	post *post
	name string // of the mailbox
	key  namespace.Key
}

// onTarget completes a command whose first argument is a KEY, and which calls do with its entity. The shell offers the
// entities in these states.
func onTarget(app *program.App, cmd *cobra.Command, do func(context.Context, *target) error, states ...turns.EntityState) *cobra.Command {
	var mailbox string
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withTarget(cmd.Context(), app, mailbox, args[0], do)
	}
	cmd.Flags().StringVar(&mailbox, "mailbox", "", "`name` of the mailbox, if several have the namespace of KEY")
	complete(app, cmd, keys(states...))
	return cmd
}

// withTarget finds the mailbox and the entity that a KEY names, and calls do.
func withTarget(ctx context.Context, app *program.App, mailbox, text string, do func(context.Context, *target) error) error {
	space, entity, ok := strings.Cut(text, "/")
	if !ok || space == "" || entity == "" {
		return program.UsageError("KEY is %q: give namespace/entity, such as conversation/42", text)
	}
	return with(ctx, app, func(p *post) error {
		name, err := p.choose(mailbox, space)
		if err != nil {
			return err
		}
		key, err := name.Namespace.Text(entity)
		if err != nil {
			return program.UsageError("%w", err)
		}
		box, err := p.open(ctx, name)
		if err != nil {
			return err
		}
		return do(ctx, &target{box, p, name.Name, key})
	})
}

// choose returns the mailbox of --mailbox, or the one with a namespace of this name.
func (p *post) choose(mailbox, space string) (turns.Name, error) {
	if mailbox != "" {
		name, err := p.named(mailbox)
		if err == nil && name.Namespace.Name() != space {
			err = program.UsageError("the mailbox %s has the namespace %s, and KEY has %s", name.Name, name.Namespace.Name(), space)
		}
		return name, err
	}
	var found []turns.Name
	for _, n := range p.names {
		if n.Namespace.Name() == space {
			found = append(found, n)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return turns.Name{}, &program.ExitError{Code: program.ExitFree, Err: fmt.Errorf("no mailbox of %s has the namespace %q: there is %s", p.place, space, list(p.names))}
	}
	return turns.Name{}, program.UsageError("several mailboxes have the namespace %s: choose one with --mailbox: %s", space, list(found))
}
