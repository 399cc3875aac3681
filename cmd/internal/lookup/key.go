package lookup

import (
	"context"
	"errors"

	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/namespace"
)

// Key is App.Key for commands that only read: it takes a namespace without a setting from the
// processes that use it. A command that takes a lock must not do so. It would take another lock if
// a process were wrong, and none without an answer.
func (l *Looker) Key(ctx context.Context, args []string) (namespace.Key, error) {
	key, err := l.app.Key(args)
	if !errors.Is(err, namespace.ErrUnknownNamespace) {
		return key, err
	}
	v, lookErr := l.Look(ctx)
	if lookErr != nil {
		return key, err // an unknown namespace stays unknown
	}
	if told, parseErr := overview.Namespaces(v.Answers).Parse(args[0]); parseErr == nil {
		return told, nil
	}
	return key, err
}

// A Selection is the keys that an argument KEY or PREFIX names.
type Selection struct {
	Filter overview.Filter
	Known  []namespace.Key
}

// Select parses the argument KEY or PREFIX: a prefix ends with '/', ':' or '*'. An unknown
// namespace is an error: empty output must mean that nothing is locked.
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

// CheckSelection returns the errors of Select that do not depend on answers.
func CheckSelection(app *program.App, text string) error {
	if _, ok := prefixOf(text); ok {
		return nil
	}
	if _, err := app.Key([]string{text}); !errors.Is(err, namespace.ErrUnknownNamespace) {
		return err
	}
	return nil
}
