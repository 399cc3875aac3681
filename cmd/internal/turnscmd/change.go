package turnscmd

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/turns"
)

// What commands and the monitor's page say that they did, before the entity.
const (
	Interrupted = "interrupted the turn of"
	PutBack     = "put back dead letters of"
)

func newInterrupt(app *program.App) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:        "interrupt KEY",
		Short:      "End the running turn of an entity, whichever node runs it",
		SuggestFor: []string{"stop", "cancel", "kill"},
		Long: `End the context of an entity's running turn, with the reason as its cause. The handler decides
about the messages: it can commit them, or return an error, so that they are tried again. A
handler that ignores its context continues.

Exit codes: 0 the turn was interrupted, 3 the entity has no running turn.`,
		Example: "  pglatch turns interrupt conversation/42 --reason 'user left'",
		Args:    cobra.ExactArgs(1),
		PreRunE: func(*cobra.Command, []string) error {
			if err := program.CheckReason(reason); err != nil {
				return program.UsageError("--reason: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "an operator interrupted it", "`text` that the handler gets as the cause, of 380 bytes at most on one line")
	return onTarget(app, cmd, func(ctx context.Context, t *target) error {
		if err := t.Interrupt(ctx, t.key, reason); err != nil {
			return t.post.fail(ctx, err)
		}
		return t.changed(app, Interrupted, nil, 0)
	}, turns.EntityRunning)
}

// A letterFunc changes one dead letter.
type letterFunc func(box *turns.Mailbox, ctx context.Context, number int64) error

func newRetry(app *program.App) *cobra.Command {
	return newLetters(app, PutBack, (*turns.Mailbox).Retry, &cobra.Command{
		Use:   "retry KEY [NUMBER]",
		Short: "Put dead letters of an entity back into its queue",
		Long: `Put a dead letter back into its old place among the messages of its entity. Without a NUMBER,
put back all dead letters of the entity. If a dead letter stopped the entity, it continues.

Exit codes: 0 they were put back, 3 there is no such dead letter.`,
		Example: "  pglatch turns retry conversation/42\n  pglatch turns retry conversation/42 17",
	})
}

func newSkip(app *program.App) *cobra.Command {
	return newLetters(app, "deleted dead letters of", (*turns.Mailbox).Skip, &cobra.Command{
		Use:   "skip KEY [NUMBER]",
		Short: "Delete dead letters of an entity",
		Long: `Delete a dead letter. Without a NUMBER, delete all dead letters of the entity. If a dead letter
stopped the entity, it continues with its next message.

Exit codes: 0 they were deleted, 3 there is no such dead letter.`,
		Example: "  pglatch turns skip conversation/42 17",
	})
}

// newLetters completes a command that changes one dead letter of an entity, or all.
func newLetters(app *program.App, did string, change letterFunc, cmd *cobra.Command) *cobra.Command {
	var number int64
	cmd.Args = cobra.RangeArgs(1, 2)
	cmd.PreRunE = func(_ *cobra.Command, args []string) (err error) {
		if len(args) == 2 {
			if number, err = strconv.ParseInt(args[1], 10, 64); err != nil || number < 1 {
				return program.UsageError("NUMBER is %q: use the number of a dead letter, as show prints it", args[1])
			}
		}
		return nil
	}
	return onTarget(app, cmd, func(ctx context.Context, t *target) error {
		return t.letters(ctx, app, did, number, change)
	}, turns.EntityStopped)
}

// lettersOnce is how many dead letters are read at one time.
const lettersOnce = 100

// letters changes the dead letter of a number, or all of the entity if it is 0.
func (t *target) letters(ctx context.Context, app *program.App, did string, number int64, change letterFunc) error {
	numbers := []int64{}
	for after := max(number-1, 0); ; {
		all, err := t.DeadLetters(ctx, t.key, after, lettersOnce)
		if err != nil {
			return t.post.fail(ctx, err)
		}
		for _, d := range all {
			if after = d.Message.Number; number != 0 && number != after {
				break
			}
			if err := change(t.Mailbox, ctx, after); err != nil && !errors.Is(err, turns.ErrNotFound) { // somebody else has it
				return t.post.fail(ctx, err)
			} else if err == nil {
				numbers = append(numbers, after)
			}
		}
		if len(all) < lettersOnce || number != 0 {
			break
		}
	}
	if len(numbers) == 0 {
		return &program.ExitError{Code: program.ExitFree, Err: fmt.Errorf("%w of %s in the mailbox %s", turns.ErrNotFound, t.key, t.name)}
	}
	return t.changed(app, did, numbers, int64(len(numbers)))
}

func newPurge(app *program.App) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "purge KEY --yes",
		Short: "Delete all messages and dead letters of an entity",
		Long: `Delete all messages and dead letters of an entity, permanently. Its running turn becomes stale:
it can commit nothing. Purge waits for transactions that have sent to the entity.

Exit codes: 0 they were deleted, 3 the entity had none, 64 --yes is missing.`,
		Example: "  pglatch turns purge conversation/42 --yes",
		Args:    cobra.ExactArgs(1),
		PreRunE: func(_ *cobra.Command, args []string) error {
			if !yes {
				return program.UsageError("purge deletes all messages of %s for good: give --yes", args[0])
			}
			return nil
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "confirm that they are deleted permanently")
	return onTarget(app, cmd, func(ctx context.Context, t *target) error {
		gone, err := t.Purge(ctx, t.key)
		if err != nil {
			return t.post.fail(ctx, err)
		}
		if gone == 0 {
			return t.empty()
		}
		return t.changed(app, "deleted messages of", nil, gone)
	}, choice{}.states()...)
}

// A change is the output of the commands that change something.
type change struct {
	Mailbox string  `json:"mailbox"`
	Key     string  `json:"key"`
	Did     string  `json:"did"`
	Count   int64   `json:"count,omitempty"`   // of messages
	Numbers []int64 `json:"numbers,omitempty"` // of dead letters
}

// changed prints what a command did.
func (t *target) changed(app *program.App, did string, numbers []int64, count int64) error {
	c := change{t.name, t.key.String(), did + " " + t.key.String(), count, numbers}
	text := program.Printable(c.Did)
	if numbers != nil || count > 0 {
		text += fmt.Sprintf(": %d", count)
	}
	return app.Print(program.Sentence(c, text))
}
