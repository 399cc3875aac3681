package main

import (
	"context"
	"flag"
	"os"

	"github.com/pglatch/pglatch/examples/internal/demokit"
)

func main() {
	httpOnly := flag.Bool("http-only", false, "leave the scenes in PostgreSQL out")
	if os.Getenv(serverVariable) != "" {
		demokit.Exit(runWriter(context.Background()))
		return
	}
	demokit.Main(func(n *demokit.Narrator) demokit.Story { return &story{Narrator: n, httpOnly: *httpOnly} })
}
