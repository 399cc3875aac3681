package lookup

import (
	"context"
	"errors"

	"github.com/pglatch/pglatch/internal/cli/overview"
	"github.com/pglatch/pglatch/internal/cli/program"
	"github.com/pglatch/pglatch/namespace"
)

// Key is App.Key for commands that look, and take no lock: a namespace that no setting names is
// that of the processes that use it. Who takes a lock must not do so: it would be another lock
// if a process were wrong, and none if nobody answered.
func (l *Looker) Key(ctx context.Context, args []string) (namespace.Key, error) {
	key, err := l.app.Key(args)
	if !errors.Is(err, namespace.ErrUnknownNamespace) {
		return key, err
	}
	v, lookErr := l.Look(ctx)
	if lookErr != nil {
		return key, err // what is not known stays unknown
	}
	if told, parseErr := overview.Namespaces(v.Answers).Parse(args[0]); parseErr == nil {
		return told, nil
	}
	return key, err
}

// A Selection is what an argument KEY or PREFIX names.
type Selection struct {
	Filter overview.Filter
	Known  []namespace.Key
}

// Select reads the argument KEY or PREFIX: a prefix ends with '/', ':' or '*'. What a namespace
// that nobody knows has is not known, which is an error: nothing shown must mean that nothing
// is locked.
func (v View) Select(app *program.App, text string) (Selection, error) {
	told := overview.Namespaces(v.Answers)
	if prefix, ok := prefixOf(text); ok {
		return Selection{Filter: overview.Filter{Prefix: prefix}}, checkPrefix(app, told, prefix)
	}
	key, err := app.Key([]string{text})
	if errors.Is(err, namespace.ErrUnknownNamespace) {
		if named, parseErr := told.Parse(text); parseErr == nil {
			key, err = named, nil
		}
	}
	return Selection{overview.Filter{Tag: key.Tag()}, []namespace.Key{key}}, err
}

// CheckSelection finds what Select refuses whoever answers.
func CheckSelection(app *program.App, text string) error {
	if _, ok := prefixOf(text); ok {
		return nil
	}
	if _, err := app.Key([]string{text}); !errors.Is(err, namespace.ErrUnknownNamespace) {
		return err
	}
	return nil
}
