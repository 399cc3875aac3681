// Command pglatch-kubernetes is pglatch with one more backend for elections, the Lease of the Kubernetes API:
//
//	pglatch-kubernetes leader run scheduler --backend kubernetes -- ./scheduler
package main

import (
	"os"

	"github.com/pglatch/pglatch/cmd/internal/cli"
	"github.com/pglatch/pglatch/cmd/internal/leadercmd"
)

func main() {
	os.Exit(cli.Main(cli.Options{
		Program:  "pglatch-kubernetes",
		Backends: []leadercmd.Backend{{Name: "kubernetes", Flags: flags}},
	}))
}
