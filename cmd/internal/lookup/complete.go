package lookup

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/cmd/internal/program"
)

// completeWithin is the time limit for a completion after the user has pressed TAB.
const completeWithin = 1500 * time.Millisecond

// Glance calls look for a completion. The shell receives no error: without a database there are no
// completions.
func Glance(cmd *cobra.Command, app *program.App, look func(context.Context)) {
	if err := app.Resolve(cmd); err != nil {
		return
	}
	app.Silence()
	ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
	defer cancel()
	look(ctx)
}

func glance(cmd *cobra.Command, app *program.App) (v View, ok bool) {
	Glance(cmd, app, func(ctx context.Context) {
		l, err := Open(app, nil, 0)
		if err != nil {
			return
		}
		v, err = l.Look(ctx)
		go l.Close() // the program ends, even if a dead network delays Close
		ok = err == nil
	})
	return v, ok
}

// CompleteKey offers namespaces, and keys with holders or waiters.
func CompleteKey(app *program.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault // part of a command to run: files
		}
		v, ok := glance(cmd, app)
		var all []cobra.Completion
		directive := cobra.ShellCompDirectiveNoFileComp
		if !strings.Contains(typed, "/") {
			directive |= cobra.ShellCompDirectiveNoSpace // the entity follows
			for _, name := range namespaces(app, v) {
				all = append(all, cobra.CompletionWithDesc(name+"/", "a namespace"))
			}
		}
		if ok {
			for _, r := range v.Rows() {
				if !overview.Hidden(r.Key) {
					all = append(all, cobra.CompletionWithDesc(r.Key, describe(r)))
				}
			}
		}
		return BeginningWith(typed, all), directive
	}
}

// CompletePID offers the sessions that hold locks.
func CompletePID(app *program.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		v, _ := glance(cmd, app)
		var all []cobra.Completion
		for _, r := range v.Rows() {
			for _, p := range r.Holders {
				if p.PID != 0 {
					all = append(all, cobra.CompletionWithDesc(strconv.FormatUint(uint64(p.PID), 10), p.Who()+" holds "+r.Text()))
				}
			}
		}
		return BeginningWith(typed, all), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteNamespace offers the namespaces that processes use, in the form of the flag.
func CompleteNamespace(app *program.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		v, _ := glance(cmd, app)
		var all []cobra.Completion
		for n := range overview.Namespaces(v.Answers).All() {
			all = append(all, n.String())
		}
		slices.Sort(all)
		return BeginningWith(typed, all), cobra.ShellCompDirectiveNoFileComp
	}
}

// CompleteNode offers the nodes of elections.
func CompleteNode(app *program.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		v, _ := glance(cmd, app)
		var all []cobra.Completion
		for _, a := range v.Answers.Answers {
			for _, e := range a.Elections {
				all = append(all, cobra.CompletionWithDesc(e.Node, e.State+" of "+e.Key))
			}
		}
		return BeginningWith(typed, all), cobra.ShellCompDirectiveNoFileComp
	}
}

func namespaces(app *program.App, v View) []string {
	var all []string
	for n := range app.Namespaces().All() {
		all = append(all, n.Name())
	}
	for n := range overview.Namespaces(v.Answers).All() {
		all = append(all, n.Name())
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func describe(r *overview.Row) string {
	holder := "nobody"
	if len(r.Holders) > 0 {
		holder = r.Holders[0].Who()
	}
	text := "held by " + holder
	if n := len(r.Waiters); n > 0 {
		text += fmt.Sprintf(", %d waiting", n)
	}
	return text
}

// BeginningWith returns the completions for the typed text. Its words are safe for a terminal.
func BeginningWith(typed string, all []cobra.Completion) []cobra.Completion {
	var matching []cobra.Completion
	for _, c := range all {
		if strings.HasPrefix(c, typed) {
			word, description, _ := strings.Cut(c, "\t")
			matching = append(matching, cobra.CompletionWithDesc(program.Printable(word), program.Printable(description)))
		}
	}
	return matching
}
