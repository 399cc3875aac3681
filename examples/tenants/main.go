package main

import (
	"flag"
	"os"

	"github.com/pglatch/pglatch/examples/internal/demokit"
)

func main() {
	if name := os.Getenv(nodeVariable); name != "" {
		demokit.Exit(serveNode(name))
		return
	}
	broken := flag.Bool("break", false, "the control: the writes are not guarded, so that a claim must fail")
	demokit.Main(func(n *demokit.Narrator) demokit.Story { return &story{Narrator: n, broken: *broken} })
}
