package lockcmd

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/program"
)

// A termination is one use of the command terminate.
type termination struct {
	app             *program.App
	yes, force, dry bool
}

// NewTerminate returns the command terminate.
func NewTerminate(app *program.App) *cobra.Command {
	t := &termination{app: app}
	cmd := &cobra.Command{
		Use:        "terminate PID",
		Short:      "End a session of PostgreSQL, which frees all its locks",
		SuggestFor: []string{"kill", "cancel"},
		Long: `End a session (pg_terminate_backend), which frees all its locks. First the command shows
what will be lost, from the processes' answers and pg_locks, and asks for confirmation.
Without a terminal, pass --yes. With --dry-run it only shows what would be lost. Unless
--force is given, it refuses two kinds of session: one that neither holds nor awaits an
advisory lock and belongs to no process that answers, and one that answers for its process
and holds no lock. A process whose session ends detects the loss within milliseconds. A
stopped process detects it when it resumes, and its work may continue until then.

Exit codes: 0 the session has ended, 3 there is no such session, 64 it was not confirmed or
is refused, 77 the role lacks the right (it must have the privileges of the session's role,
or of pg_signal_backend).`,
		Example: "  pglatch terminate 4711\n  pglatch terminate 4711 --dry-run\n  pglatch terminate 4711 --yes",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			pid, err := strconv.ParseUint(args[0], 10, 32)
			if err != nil || pid == 0 {
				return program.UsageError("PID is %q: use the number of a session, as ls shows it", args[0])
			}
			return t.run(cmd.Context(), uint32(pid))
		},
	}
	cmd.Flags().BoolVarP(&t.yes, "yes", "y", false, "do not ask")
	cmd.Flags().BoolVar(&t.dry, "dry-run", false, "show what would be lost, and end nothing")
	cmd.Flags().BoolVar(&t.force, "force", false, "end even a session that has nothing to do with advisory locks")
	return cmd
}

func (t *termination) run(ctx context.Context, pid uint32) error {
	l, err := lookup.Open(t.app, nil, 0)
	if err != nil {
		return err
	}
	defer l.Close()
	s, err := l.Victim(ctx, pid)
	if err != nil {
		return err
	}
	if err := s.Related(); err != nil && !t.force {
		return err
	}
	if t.dry {
		return t.app.Print(program.Output{Document: s, Text: s.Text})
	}
	if err := t.confirm(s); err != nil {
		return err
	}
	if err := l.Terminate(ctx, s); err != nil {
		return err
	}
	return t.app.Print(program.Sentence(s, s.Ended()))
}

// confirm shows what will be lost, and asks for confirmation.
func (t *termination) confirm(s *lookup.Victim) error {
	var text bytes.Buffer
	s.Text(&text)
	if t.yes {
		for line := range strings.Lines(text.String()) {
			t.app.Logger().Info("to be ended", slog.String("what", strings.TrimSpace(line)))
		}
		return nil
	}
	if !program.IsTerminal(os.Stdin) {
		return program.UsageError("give --yes to end, without a terminal to ask on: %s", strings.ReplaceAll(strings.TrimSpace(text.String()), "\n", ";"))
	}
	_, _ = fmt.Fprintf(os.Stderr, "%sEnd this session, and free all its locks? Type %d: ", text.String(), s.PID)
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n') // the text received so far is the answer
	if strings.TrimSpace(answer) != strconv.FormatUint(uint64(s.PID), 10) {
		return program.UsageError("backend %d was left alone", s.PID)
	}
	return nil
}
