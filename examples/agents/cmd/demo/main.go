// Command demo shows, on a real PostgreSQL, what an agent's lock does when two
// replicas of examples/agents get hooks for the same agents:
//
//	go run ./examples/agents/cmd/demo         # and stay until Ctrl-C
//	go run ./examples/agents/cmd/demo -once   # exit 1 if a claim fails
//
// It starts PostgreSQL, or creates a database of its own on the server of
// PGLATCH_TEST_DATABASE_URL, and starts itself twice more as the replicas. All of them
// listen on loopback addresses and are gone when it ends.
package main

import (
	"os"

	"github.com/pglatch/pglatch/examples/internal/demokit"
)

func main() {
	if name := os.Getenv(replicaVariable); name != "" {
		demokit.Exit(serveReplica(name))
		return
	}
	demokit.Main(func(n *demokit.Narrator) demokit.Story { return &demo{Narrator: n} })
}
