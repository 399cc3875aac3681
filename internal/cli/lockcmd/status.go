package lockcmd

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/internal/cli/program"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

// A keyStatus is who holds a key and who waits for it.
type keyStatus struct {
	Key     string         `json:"key"`
	Held    bool           `json:"held"`
	Holders []monitor.Lock `json:"holders"`
	Waiters []monitor.Lock `json:"waiters"` // in the order of the queue
	Server  monitor.Server `json:"server"`
}

func statusOf(key namespace.Key, s monitor.Snapshot) keyStatus {
	status := keyStatus{Key: key.String(), Holders: []monitor.Lock{}, Waiters: []monitor.Lock{}, Server: s.Server}
	for _, l := range s.Locks {
		switch {
		case l.Tag != key.Tag():
		case l.Granted:
			status.Held = true
			status.Holders = append(status.Holders, l)
		default:
			status.Waiters = append(status.Waiters, l)
		}
	}
	return status
}

// NewStatus makes the command status.
func NewStatus(app *program.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "status KEY",
		Short:      "Show who holds a lock; exit 0 if it is held, 3 if it is free",
		SuggestFor: []string{"who", "get", "holder"},
		Long: `Show who holds a lock and who waits for it. The exit code is 0 if somebody holds it
and 3 if it is free. By the time that you read it this may have changed: to do
something only while the lock is yours, use "pglatch run".`,
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := app.Key(args)
			if err != nil {
				return err
			}
			s, err := locks(cmd.Context(), app)
			if err != nil {
				return err
			}
			status := statusOf(key, s)
			err = app.Print(program.Output{Document: status, Text: program.Text(func(w *bytes.Buffer) { writeStatus(app, w, status) })})
			if err == nil && !status.Held {
				err = &program.ExitError{Code: program.ExitFree}
			}
			return err
		},
	}
	app.AddKeyFlags(cmd)
	return cmd
}

func writeStatus(app *program.App, w *bytes.Buffer, s keyStatus) {
	if !s.Held {
		fmt.Fprintf(w, "%s is %s\n", program.Printable(s.Key), app.Paint(program.Green, "free"))
	}
	for _, l := range s.Holders {
		fmt.Fprintf(w, "%s is %s %s\n", program.Printable(s.Key), app.Paint(program.Yellow, "held by"), sessionText(l))
	}
	for _, l := range s.Waiters {
		fmt.Fprintf(w, "%s is waited for by %s\n", program.Printable(s.Key), sessionText(l))
	}
}

// sessionText is a session and how it holds or waits.
func sessionText(l monitor.Lock) string {
	text := "backend " + pidText(l.PID)
	if l.PID == 0 {
		text = "a prepared transaction"
	}
	if l.ApplicationName != "" {
		text += " (" + program.Printable(l.ApplicationName) + ")"
	}
	text += ", " + mode(l)
	if l.State != nil {
		text += ", " + *l.State
	}
	if since := lasted(l); since != "-" {
		text += ", for " + since
	}
	if l.BackendStart != nil {
		text += ", in a session since " + l.BackendStart.Format("2006-01-02T15:04:05Z")
	}
	return text
}
