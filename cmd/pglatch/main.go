// Command pglatch looks at and takes PostgreSQL advisory locks:
//
//	pglatch --namespace agent=1 status agent/42
package main

import (
	"context"
	"os"

	"github.com/pglatch/pglatch/cmd/pglatch/internal/cli"
)

func main() {
	ctx, stop := cli.WithSignals(context.Background())
	code := cli.Run(ctx, cli.NewApp(), os.Args[1:])
	stop()
	os.Exit(code)
}
