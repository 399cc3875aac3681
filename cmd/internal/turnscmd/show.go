package turnscmd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/turns"
)

func newShow(app *program.App) *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "show KEY",
		Short: "Show an entity: its turn, its messages and its dead letters",
		Long: `Show what one entity is doing, its waiting messages in order, and its dead letters. Bodies are
not shown.

Exit codes: 0 it has a message, a turn or a dead letter, 3 it has none, or no mailbox has the
namespace of KEY.`,
		Example: "  pglatch turns show conversation/42\n  pglatch turns show conversation/42 -o json",
		Args:    cobra.ExactArgs(1),
		PreRunE: func(*cobra.Command, []string) error { return program.AtLeastOne("limit", limit) },
	}
	cmd.Flags().IntVar(&limit, "limit", 50, "maximum number of messages, and of dead letters")
	return onTarget(app, cmd, func(ctx context.Context, t *target) error { return t.show(ctx, app, limit) }, choice{}.states()...)
}

func (t *target) show(ctx context.Context, app *program.App, limit int) error {
	name := turns.Name{Name: t.name, Namespace: t.key.Namespace()}
	e, err := t.Entity(ctx, t.key)
	if err != nil {
		return t.post.fail(ctx, err)
	}
	messages, err := t.Messages(ctx, t.key, 0, limit)
	if err != nil {
		return t.post.fail(ctx, err)
	}
	letters, err := t.DeadLetters(ctx, t.key, 0, limit)
	if err != nil {
		return t.post.fail(ctx, err)
	}
	d := detail{entity: newEntity(name, e), Waiting: []waiting{}, DeadLetters: []letter{}}
	for _, m := range messages {
		d.Waiting = append(d.Waiting, waiting{m.Number, m.ID, len(m.Body), m.Trace, m.SentAt.UTC()})
	}
	for _, l := range letters {
		d.DeadLetters = append(d.DeadLetters, newLetter(name, l))
	}
	if err := app.Print(d.output(app)); err != nil {
		return err
	}
	if e.State == turns.EntityIdle && len(letters) == 0 {
		return t.empty()
	}
	return nil
}

// empty is the error of an entity without messages and dead letters.
func (t *target) empty() error {
	return &program.ExitError{Code: program.ExitFree, Err: fmt.Errorf("%s has no message in the mailbox %s", t.key, t.name)}
}

// A detail is the output of show.
type detail struct {
	entity

	Waiting     []waiting `json:"waiting"`
	DeadLetters []letter  `json:"dead_letters"`
}

// A waiting message has no body here: it can be large, and of nobody's business.
type waiting struct {
	Number int64     `json:"number"`
	ID     string    `json:"id,omitempty"`
	Bytes  int       `json:"bytes"`
	Trace  string    `json:"trace,omitempty"`
	SentAt time.Time `json:"sent_at"`
}

func (d detail) output(app *program.App) program.Output {
	return program.Output{Document: d, Text: func(w *bytes.Buffer) {
		writeEntities(app, w, []entity{d.entity}, false)
		if d.Interrupted != "" {
			fmt.Fprintf(w, "interrupted: %s\n", program.Printable(d.Interrupted))
		}
		if len(d.Waiting) > 0 {
			t := app.NewTable("NUMBER", "ID", "BYTES", "SENT AT", "TRACE")
			for _, m := range d.Waiting {
				t.Add("", fmt.Sprint(m.Number), cmp.Or(m.ID, "-"), fmt.Sprint(m.Bytes), m.SentAt.Format(time.RFC3339), cmp.Or(m.Trace, "-"))
			}
			fmt.Fprintln(w)
			t.WriteTo(w)
		}
		if len(d.DeadLetters) > 0 {
			fmt.Fprintln(w)
			writeLetters(app, w, d.DeadLetters, false)
		}
	}}
}
