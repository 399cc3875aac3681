package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/internal/cli/program"
)

// hint adds to an error of cobra's own, which is about the arguments, where to read on.
func hint(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
}

// checkArgs makes the errors of a command's arguments say what it takes.
func checkArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		var err error
		if check != nil {
			err = check(cmd, args)
		}
		if err != nil && check(cmd, nil) == nil && check(cmd, args[:1]) != nil {
			err = fmt.Errorf("it takes no arguments, and got %s", strings.Join(args, " "))
		}
		return hint(cmd, err)
	}
}

// unknownCommand is the error for a command that does not exist.
func unknownCommand(cmd *cobra.Command, name string) error {
	text := fmt.Sprintf("unknown command %q for %q", name, cmd.CommandPath())
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = min(2, len(name)/2) // of three letters, one may be wrong
	}
	var near []string
	for _, sub := range cmd.Commands() {
		if slices.Contains(sub.SuggestFor, name) { // a word of other programs for it is no slip of the pen
			near = append(near, sub.Name())
		}
	}
	if near == nil {
		near = cmd.SuggestionsFor(name)
	}
	if len(near) > 0 {
		text += "; did you mean " + strings.Join(near, " or ") + "?"
	}
	return program.UsageError("%w", hint(cmd, errors.New(text)))
}
