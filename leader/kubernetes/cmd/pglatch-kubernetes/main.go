// Command pglatch-kubernetes is pglatch with one more backend of elections, the
// Lease of the Kubernetes API:
//
//	pglatch-kubernetes leader run scheduler --backend kubernetes -- ./scheduler
package main

import (
	"os"

	"github.com/pglatch/pglatch/internal/cli"
)

func main() {
	os.Exit(cli.Main(cli.Options{
		Program:  "pglatch-kubernetes",
		Backends: []cli.Backend{{Name: "kubernetes", Flags: flags}},
	}))
}
