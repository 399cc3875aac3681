package program

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/namespace"
)

// AddKeyFlags adds the flags --key1 and --key2 to cmd, which Key reads.
func (a *App) AddKeyFlags(cmd *cobra.Command) {
	cmd.Flags().Int32Var(&a.key1, "key1", 0, "first int4 of the key, instead of KEY")
	cmd.Flags().Int32Var(&a.key2, "key2", 0, "second int4 of the key, instead of KEY")
	cmd.MarkFlagsRequiredTogether("key1", "key2")
}

// Key returns the key that the arguments of a command name: one KEY, or none with --key1 and --key2.
// Pass no arguments from after "--". Errors are usage errors.
func (a *App) Key(args []string) (namespace.Key, error) {
	flags := a.command.Flags().Changed("key1")
	switch {
	case flags && len(args) == 0:
		return namespace.Pair(a.key1, a.key2), nil
	case flags:
		return namespace.Key{}, UsageError("give KEY or --key1 and --key2, not both")
	case len(args) != 1:
		return namespace.Key{}, UsageError("give one KEY: a name, namespace/entity, 1:100 or @12345; or --key1 and --key2 (got %d arguments)", len(args))
	}
	key, err := a.parse(args[0])
	if errors.Is(err, namespace.ErrUnknownNamespace) {
		return key, UsageError("%w: say its number with --namespace name=number, or in PGLATCH_NAMESPACES", err)
	}
	if err != nil {
		return key, UsageError("%w", err)
	}
	return key, nil
}

// Plain is the namespace of plain names, as in "pglatch run nightly-report". A Go program takes the
// same lock with namespace.Must(32767, "name").Text("nightly-report").
var Plain = namespace.Must(namespace.MaxNumber, "name")

// parse parses a KEY, or a plain name, which has the form of a namespace's name.
func (a *App) parse(text string) (namespace.Key, error) {
	if _, err := namespace.New(1, text); err != nil {
		return a.namespaces.Parse(text)
	}
	if _, ok := a.namespaces.Named(text); ok {
		return namespace.Key{}, UsageError("%s is a namespace: give the entity too, as in %[1]s/42", text)
	}
	if !slices.Contains(slices.Collect(a.namespaces.All()), Plain) {
		return namespace.Key{}, UsageError("%q is a name without a namespace, and names have the namespace %v, which --namespace or PGLATCH_NAMESPACES uses for something else: "+
			"give namespace/entity", text, Plain)
	}
	return Plain.Text(text)
}
