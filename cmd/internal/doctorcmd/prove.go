package doctorcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/cmd/internal/prove"
)

// A prover is the flags of doctor --prove.
type prover struct {
	on    bool
	parts []string // empty = all
}

func (p *prover) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.on, "prove", false, "try on the server what pglatch relies on; the DSN of the server may follow")
	cmd.Flags().StringSliceVar(&p.parts, "parts", nil, "the parts of pglatch that the exit code of --prove is about: "+strings.Join(prove.PartNames(), ", ")+" (default: all)")
}

func (p *prover) run(ctx context.Context, app *program.App, args []string) error {
	for _, name := range p.parts {
		if !slices.Contains(prove.PartNames(), name) {
			return program.UsageError("--parts: there is no part %q: use %s", name, strings.Join(prove.PartNames(), ", "))
		}
	}
	if len(args) == 1 {
		app.UseDatabase(args[0], "the DSN of --prove")
	}
	config, err := app.ConnConfig()
	if err != nil {
		return err
	}
	report, err := prove.Run(ctx, config)
	switch {
	case err != nil:
		return program.Unavailable(ctx, err)
	case ctx.Err() != nil: // a signal: what is left is not known
		return context.Cause(ctx)
	}
	return p.print(app, report)
}

// print prints the report, and says which of the parts cannot be relied on.
func (p *prover) print(app *program.App, report prove.Report) error {
	names := p.parts
	if names == nil {
		names = prove.PartNames()
	}
	failed, unknown := report.Failed(names)
	document := struct {
		OK bool `json:"ok"`
		prove.Report
	}{failed == nil && unknown == nil, report}
	lines := append(program.Lines(report.Proofs), program.Lines(report.Parts)...)
	err := app.Print(program.Output{Document: document, Lines: lines, Text: func(w *bytes.Buffer) { writeReport(app, w, report) }})
	switch {
	case err != nil:
		return err
	case failed != nil:
		return &program.ExitError{Code: program.ExitInternal, Err: fmt.Errorf("must not be used on this server: %s", strings.Join(failed, ", "))}
	case unknown != nil:
		return &program.ExitError{Code: program.ExitBusy, Err: errors.New("not proven, because an answer is missing: " + strings.Join(unknown, ", "))}
	}
	return nil
}

func writeReport(app *program.App, w *bytes.Buffer, report prove.Report) {
	colors := map[prove.Status]string{
		prove.Works: program.Green, prove.WorksWith: program.Yellow, prove.DoesNot: program.Red, prove.Unknown: program.Yellow,
	}
	proofs := app.NewTable("PROOF", "STATUS", "WHY", "SOURCE")
	for _, r := range report.Proofs {
		proofs.Add(colors[r.Status], r.Proof, string(r.Status), program.OneLine(r.Why), path.Base(r.Source))
	}
	proofs.WriteTo(w)
	fmt.Fprintf(w, "\nThe sources are pages of %s.\nBetween this program and the server: %s.\n\n", prove.Manual, report.Between)
	uses := map[prove.Use]string{
		prove.MayBeUsed: program.Green, prove.MayBeUsedWith: program.Yellow, prove.NotProven: program.Yellow, prove.MustNotBeUsed: program.Red,
	}
	parts := app.NewTable("PART", "VERDICT", "WHY")
	for _, v := range report.Parts {
		parts.Add(uses[v.Use], v.Part, string(v.Use), program.OneLine(v.Why))
	}
	parts.WriteTo(w)
}
