package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/program"
)

// hint adds to cobra's own errors, which are about the arguments, where to find help.
func hint(cmd *cobra.Command, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
}

// checkArgs makes errors about a command's arguments describe the valid arguments.
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

// unknownCommand returns the error for a command that does not exist.
func unknownCommand(cmd *cobra.Command, name string) error {
	text := fmt.Sprintf("unknown command %q for %q", name, cmd.CommandPath())
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = min(2, len(name)/2) // in three letters, one may be wrong
	}
	var near []string
	for _, sub := range cmd.Commands() {
		if slices.Contains(sub.SuggestFor, name) { // another program's word for it is not a typing error
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
