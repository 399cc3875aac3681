package leadercmd

import (
	"bytes"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/leader"
)

func newStatus(app *program.App, more []Backend) *cobra.Command {
	var flags electionFlags
	cmd := &cobra.Command{
		Use:   "status NAME",
		Short: "Show who leads; exit code 3 if nobody does",
		Long: `Show who leads. Exit codes: 0 a node leads, 3 no node leads.

On postgres, a holder without a term is a candidate that is taking over, or a session that
holds the election's lock without taking part. On kubernetes, and on file after a reboot, a
dead leader shows only in that its record stops changing. status looks once, and so reports
such a leader as alive; watch detects it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			election, err := flags.election(app, cmd, args)
			if err != nil {
				return err
			}
			defer election.close()
			holder, ok, err := election.Backend.Leader(cmd.Context())
			if err != nil {
				return program.Unavailable(cmd.Context(), err)
			}
			if err := app.Print(leadershipOf(election.Name, holder, ok).output()); err != nil || ok {
				return err
			}
			return &program.ExitError{Code: program.ExitFree}
		},
	}
	flags.addFlags(app, cmd, more)
	return cmd
}

// A leadership is the output of status and watch.
type leadership struct {
	Time         *time.Time `json:"time,omitempty"`
	Key          string     `json:"key"`
	Led          bool       `json:"led"`
	Identity     string     `json:"identity,omitempty"`
	Term         string     `json:"term,omitempty"`
	FencingToken uint64     `json:"fencing_token,omitempty"`
	Since        *time.Time `json:"since,omitempty"`
	Detail       string     `json:"detail,omitempty"`
}

func leadershipOf(election string, h leader.Holder, ok bool) leadership {
	l := leadership{Key: election, Led: ok, Identity: h.Identity, FencingToken: h.Term.Uint64(), Detail: h.Detail}
	if !h.Term.IsZero() {
		l.Term = h.Term.String()
	}
	if !h.Since.IsZero() {
		l.Since = &h.Since
	}
	return l
}

// same reports whether only the time differs.
func (l leadership) same(o leadership) bool {
	return l.Led == o.Led && l.Identity == o.Identity && l.Term == o.Term && l.Detail == o.Detail
}

func (l leadership) output() program.Output {
	return program.Output{Document: l, Text: func(b *bytes.Buffer) {
		if l.Time != nil {
			fmt.Fprintf(b, "%s ", l.Time.Format(time.RFC3339))
		}
		if !l.Led {
			fmt.Fprintf(b, "%s: nobody leads\n", program.Printable(l.Key))
			return
		}
		fmt.Fprintf(b, "%s: %s", program.Printable(l.Key), program.Printable(l.Identity))
		if l.Term != "" {
			fmt.Fprintf(b, " leads in term %s", l.Term)
		} else {
			b.WriteString(" holds the lock")
		}
		if l.Since != nil {
			fmt.Fprintf(b, " since %s", l.Since.Format(time.RFC3339))
		}
		if l.Detail != "" {
			fmt.Fprintf(b, " (%s)", program.Printable(l.Detail))
		}
		b.WriteString("\n")
	}}
}
