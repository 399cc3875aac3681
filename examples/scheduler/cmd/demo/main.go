// Command demo shows, on a real PostgreSQL, which of two nodes of examples/scheduler
// runs the schedulers, and what happens when it dies or is stopped:
//
//	go run ./examples/scheduler/cmd/demo         # and stay until Ctrl-C
//	go run ./examples/scheduler/cmd/demo -once   # exit 1 if a claim fails
//
// It starts PostgreSQL, or creates a database of its own on the server of
// PGLATCH_TEST_DATABASE_URL, and starts itself again as the nodes. All of them listen on
// loopback addresses and are gone when it ends.
package main

import (
	"os"

	"github.com/pglatch/pglatch/examples/internal/demokit"
)

func main() {
	if name := os.Getenv(nodeVariable); name != "" {
		demokit.Exit(serveNode(name))
		return
	}
	demokit.Main(func(n *demokit.Narrator) demokit.Story { return &demo{Narrator: n} })
}
