package actions

import (
	"context"
	"fmt"
	"strings"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/cmd/internal/turnscmd"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

// turnKinds are the actions on turns.
func turnKinds() []kind {
	return []kind{
		{name: "interrupt", text: "Interrupt the running turn of an entity", need: End, fields: []string{"mailbox", "entity"}, plan: interrupting},
		{name: "retry", text: "Retry a dead letter", need: End, fields: []string{"mailbox", "number"}, plan: retrying},
	}
}

func interrupting(ctx context.Context, d *Database, _ *lookup.Looker, r Request) (*plan, error) {
	var entity namespace.Key
	if err := turnscmd.In(ctx, d.App, r.Mailbox, func(m *turns.Mailbox, n namespace.Namespace) (err error) {
		if entity, err = n.Text(strings.TrimPrefix(r.Entity, n.Name()+"/")); err != nil { // agent/42, or 42
			return program.UsageError("%w", err)
		}
		e, err := m.Entity(ctx, entity)
		if err == nil && e.State != turns.EntityRunning {
			err = fmt.Errorf("%w: %s", turns.ErrNotRunning, entity)
		}
		return err
	}); err != nil {
		return nil, err
	}
	name := quoted(entity.String())
	return &plan{
		title: fmt.Sprintf("Interrupt the turn of %s in %s", name, quoted(r.Mailbox)),
		lines: []string{"The context of its running turn ends, whichever node runs it.", "The handler decides about the messages: it commits them, or they are tried again."},
		same:  fmt.Sprintf("interrupt %s %s", r.Mailbox, entity),
		run: func(ctx context.Context, why string) (string, error) {
			if err := turnscmd.In(ctx, d.App, r.Mailbox, func(m *turns.Mailbox, _ namespace.Namespace) error { return m.Interrupt(ctx, entity, why) }); err != nil {
				return "", err
			}
			return turnscmd.Interrupted + " " + name, nil
		},
	}, nil
}

func retrying(ctx context.Context, d *Database, _ *lookup.Looker, r Request) (*plan, error) {
	var letter turns.DeadLetter
	var entity string // as a command takes it
	if err := turnscmd.In(ctx, d.App, r.Mailbox, func(m *turns.Mailbox, n namespace.Namespace) error {
		found, err := m.DeadLetters(ctx, namespace.Key{}, r.Number-1, 1)
		if err == nil && (len(found) == 0 || found[0].Message.Number != r.Number) {
			err = fmt.Errorf("%w: number %d", turns.ErrNotFound, r.Number)
		}
		if err == nil {
			letter, entity = found[0], quoted(n.Name()+"/"+found[0].Entity)
		}
		return err
	}); err != nil {
		return nil, err
	}
	return &plan{
		title: fmt.Sprintf("Retry message %d of %s in %s", r.Number, entity, quoted(r.Mailbox)),
		lines: []string{
			fmt.Sprintf("It was tried %s, until %s.", count(letter.Attempts, "time"), letter.DiedAt.UTC().Format("2006-01-02 15:04:05")),
			"The last error: " + quoted(letter.Error),
		},
		same: fmt.Sprintf("retry %s %d", r.Mailbox, r.Number),
		run: func(ctx context.Context, _ string) (string, error) {
			if err := turnscmd.In(ctx, d.App, r.Mailbox, func(m *turns.Mailbox, _ namespace.Namespace) error { return m.Retry(ctx, r.Number) }); err != nil {
				return "", err
			}
			return fmt.Sprintf("%s %s: 1", turnscmd.PutBack, entity), nil
		},
	}, nil
}
