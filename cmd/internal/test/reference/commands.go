package reference

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/cli"
	"github.com/pglatch/pglatch/cmd/internal/program"
)

// commands are all commands of pglatch that do something themselves, in the order of its help.
func commands() (all []*cobra.Command) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		subs := c.Commands()
		if len(subs) == 0 && c.IsAvailableCommand() {
			all = append(all, c)
		}
		for _, sub := range subs {
			if sub.Name() != "help" && sub.Name() != "completion" {
				walk(sub)
			}
		}
	}
	cobra.EnableCommandSorting = false
	walk(pglatch())
	return all
}

func pglatch() *cobra.Command { return cli.New(program.New(), cli.Options{}) }

// ofCommands lists the commands, with links to their flags.
func ofCommands() string {
	var rows [][]string
	for _, c := range commands() {
		_, arguments, _ := strings.Cut(c.Use, " ")
		command := strings.TrimSpace(c.CommandPath() + " " + strings.TrimSuffix(arguments, "[flags]"))
		cell := code(command)
		if hasFlags(c.LocalNonPersistentFlags()) {
			cell = "[" + cell + "](cli-flags.md#" + strings.ReplaceAll(c.CommandPath(), " ", "-") + ")"
		}
		rows = append(rows, []string{strings.ReplaceAll(cell, "|", `\|`), prose(c.Short)})
	}
	return table([]string{"command", "what it does"}, rows)
}

// ofFlags has a section of each command with flags.
func ofFlags() string {
	var sections []string
	for _, c := range commands() {
		if flags := c.LocalNonPersistentFlags(); hasFlags(flags) {
			sections = append(sections, "## "+c.CommandPath()+"\n\n"+flagTable(flags, nil))
		}
	}
	return strings.Join(sections, "\n")
}

// ofGlobalFlags has the flags of all commands.
func ofGlobalFlags() string { return flagTable(pglatch().PersistentFlags(), nil) }

// ofServer has some flags of pglatch serve locks.
func ofServer(names ...string) string {
	for _, c := range commands() {
		if c.CommandPath() == "pglatch serve locks" {
			return flagTable(c.Flags(), names)
		}
	}
	return ""
}

func hasFlags(flags *pflag.FlagSet) (has bool) {
	flags.VisitAll(func(f *pflag.Flag) { has = has || shown(f) })
	return has
}

func shown(f *pflag.Flag) bool { return !f.Hidden && f.Name != "help" }

// flagTable lists flags; names = only those, in their order.
func flagTable(flags *pflag.FlagSet, names []string) string {
	var rows [][]string
	row := func(f *pflag.Flag) {
		if f == nil || !shown(f) {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		rows = append(rows, []string{code(strings.TrimSpace(name + " " + value)), code(defaultOf(f)), prose(usage)})
	}
	if names == nil {
		flags.VisitAll(row)
	}
	for _, name := range names {
		row(flags.Lookup(name))
	}
	return table([]string{"flag", "default", "meaning"}, rows)
}

// defaultOf is the default of a flag, "" if it is the zero of its type.
func defaultOf(f *pflag.Flag) string {
	switch f.DefValue {
	case "", "0", "0s", "false", "[]":
		return ""
	}
	return f.DefValue
}
