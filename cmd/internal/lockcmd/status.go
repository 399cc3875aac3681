package lockcmd

import (
	"bytes"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

// A keyStatus is the holders and waiters of a key.
type keyStatus struct {
	Key     string         `json:"key"`
	Held    bool           `json:"held"` // the key itself, or a slot of its semaphore
	Holders []monitor.Lock `json:"holders"`
	Waiters []monitor.Lock `json:"waiters"` // in the order of the queue
	Server  monitor.Server `json:"server"`
	// Keys are the uses of the key: a lock or an election, and a semaphore.
	Keys []*overview.Row `json:"keys,omitempty"`
}

func statusOf(key namespace.Key, v lookup.View) keyStatus {
	status := keyStatus{Key: key.String(), Holders: []monitor.Lock{}, Waiters: []monitor.Lock{}, Server: v.Server}
	status.Keys = overview.Filter{Tag: key.Tag()}.Apply(v.Rows(key))
	for _, r := range status.Keys {
		r.Key = key.String() // as the user wrote it
		status.Held = status.Held || len(r.Holders) > 0
	}
	for _, l := range v.Locks {
		switch {
		case l.Tag != key.Tag():
		case l.Granted:
			status.Holders = append(status.Holders, l)
		default:
			status.Waiters = append(status.Waiters, l)
		}
	}
	return status
}

// NewStatus returns the command status.
func NewStatus(app *program.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:        "status KEY",
		Short:      "Show the holders of a lock; exit 0 if it is held, 3 if it is free",
		SuggestFor: []string{"who", "get", "holder"},
		Long: `Show the holders and the waiters of a lock. The lock can also be that of an election, or a
semaphore, of which one slot is enough to count as held. The exit code is 0 if the lock is
held and 3 if it is free. The answer may be out of date when you read it: to do something
only while you hold the lock, use "pglatch run".

Processes that answer also report the namespaces they use, so those need not be configured.`,
		Example: "  pglatch status order/42\n  pglatch status 1:100 -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := lookup.Open(app, nil, 0)
			if err != nil {
				return err
			}
			defer l.Close()
			key, err := l.Key(cmd.Context(), args)
			if err != nil {
				return err
			}
			v, err := l.Look(cmd.Context())
			if err != nil {
				return err
			}
			if err := v.Primary(); err != nil {
				return err
			}
			v.TellHidden(app)
			status := statusOf(key, v)
			err = app.Print(program.Output{Document: status, Text: func(w *bytes.Buffer) { writeStatus(app, w, status) }})
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
	for _, r := range s.Keys {
		key := program.Printable(s.Key)
		switch r.Kind {
		case overview.Semaphore:
			fmt.Fprintf(w, "%s is a semaphore: %s taken\n", key, r.Mode())
		case overview.Election:
			fmt.Fprintf(w, "%s is an election\n", key)
		}
		for _, p := range r.Holders {
			fmt.Fprintf(w, "%s is %s %s\n", key, app.Paint(program.Yellow, "held by"), program.Printable(p.String()))
		}
		for _, p := range r.Waiters {
			fmt.Fprintf(w, "%s is waited for by %s\n", key, program.Printable(p.String()))
		}
	}
}
