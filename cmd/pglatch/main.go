// Command pglatch inspects and takes PostgreSQL advisory locks:
//
//	pglatch --namespace agent=1 status agent/42
package main

import (
	"os"

	"github.com/pglatch/pglatch/cmd/internal/cli"
)

func main() {
	os.Exit(cli.Main(cli.Options{}))
}
