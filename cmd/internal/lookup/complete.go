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
	"github.com/pglatch/pglatch/internal/incident"
)

// completeWithin is the time limit for a completion after the user has pressed TAB.
const completeWithin = 1500 * time.Millisecond

// Complete offers the words that look finds in time. The shell receives no error: without a database there are no
// words.
func Complete(app *program.App, look func(ctx context.Context, args []string) []cobra.Completion) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if app.Resolve(cmd) != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		app.Silence()
		ctx, cancel := context.WithTimeout(cmd.Context(), completeWithin)
		defer cancel()
		return beginningWith(typed, look(ctx, args)), cobra.ShellCompDirectiveNoFileComp
	}
}

// glance queries the locks, and returns an empty View if that fails.
func glance(ctx context.Context, app *program.App) View {
	l, err := Open(app, nil, 0)
	if err != nil {
		return View{}
	}
	v, err := l.Look(ctx)
	go l.Close() // the program ends, even if a dead network delays Close
	if err != nil {
		return View{}
	}
	return v
}

// CompleteKey offers namespaces, and keys with holders or waiters.
func CompleteKey(app *program.App) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveDefault // part of a command to run: files
		}
		whole := strings.Contains(typed, "/")
		words, directive := Complete(app, func(ctx context.Context, _ []string) (all []cobra.Completion) {
			v := glance(ctx, app)
			if !whole {
				for _, name := range namespaces(app, v) {
					all = append(all, cobra.CompletionWithDesc(name+"/", "a namespace"))
				}
			}
			for _, r := range v.Rows() {
				if !incident.Hidden(r.Key) {
					all = append(all, cobra.CompletionWithDesc(r.Key, describe(r)))
				}
			}
			return all
		})(cmd, args, typed)
		if !whole {
			directive |= cobra.ShellCompDirectiveNoSpace // the entity follows
		}
		return words, directive
	}
}

// CompletePID offers the sessions that hold locks.
func CompletePID(app *program.App) cobra.CompletionFunc {
	return Complete(app, func(ctx context.Context, args []string) (all []cobra.Completion) {
		if len(args) > 0 {
			return nil
		}
		for _, r := range glance(ctx, app).Rows() {
			for _, p := range r.Holders {
				if p.PID != 0 {
					all = append(all, cobra.CompletionWithDesc(strconv.FormatUint(uint64(p.PID), 10), p.Who()+" holds "+r.Text()))
				}
			}
		}
		return all
	})
}

// CompleteNamespace offers the namespaces that processes use, in the form of the flag.
func CompleteNamespace(app *program.App) cobra.CompletionFunc {
	return Complete(app, func(ctx context.Context, _ []string) (all []cobra.Completion) {
		for n := range overview.Namespaces(glance(ctx, app).Answers).All() {
			all = append(all, n.String())
		}
		slices.Sort(all)
		return all
	})
}

// CompleteNode offers the nodes of elections.
func CompleteNode(app *program.App) cobra.CompletionFunc {
	return Complete(app, func(ctx context.Context, _ []string) (all []cobra.Completion) {
		for _, a := range glance(ctx, app).Answers.Answers {
			for _, e := range a.Elections {
				all = append(all, cobra.CompletionWithDesc(e.Node, e.State+" of "+e.Key))
			}
		}
		return all
	})
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

// beginningWith returns the completions for the typed text. Its words are safe for a terminal.
func beginningWith(typed string, all []cobra.Completion) []cobra.Completion {
	var matching []cobra.Completion
	for _, c := range all {
		if strings.HasPrefix(c, typed) {
			word, description, _ := strings.Cut(c, "\t")
			matching = append(matching, cobra.CompletionWithDesc(program.Printable(word), program.Printable(description)))
		}
	}
	return matching
}
