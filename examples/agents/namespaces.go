package agents

import "github.com/pglatch/pglatch/namespace"

// The kinds of things that the program locks. Never reuse a number for something else.
var (
	Agents = namespace.Must(1, "agent")  // by agents.id
	Schema = namespace.Must(2, "schema") // by the schema's version
)

// Namespaces gives names to the keys in the list of locks.
func Namespaces() (*namespace.Set, error) { return namespace.NewSet(Agents, Schema) }
