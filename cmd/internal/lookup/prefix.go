package lookup

import (
	"strings"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/namespace"
)

func prefixOf(text string) (string, bool) {
	if prefix, ok := strings.CutSuffix(text, "*"); ok {
		return prefix, true
	}
	return text, strings.HasSuffix(text, "/") || strings.HasSuffix(text, ":")
}

func checkPrefix(app *program.App, told *namespace.Set, prefix string) error {
	name, _, ok := strings.Cut(prefix, "/")
	if !ok {
		return nil
	}
	_, known := app.Namespaces().Named(name)
	if _, heard := told.Named(name); !known && !heard {
		return program.UsageError("unknown namespace %q, and no process that answers uses it: say its number with --namespace name=number, or in PGLATCH_NAMESPACES", name)
	}
	return nil
}
