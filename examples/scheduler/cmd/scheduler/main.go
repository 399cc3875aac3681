// Command scheduler runs one node. Start any number of nodes on one database:
//
//	DATABASE_URL=postgres://… go run ./examples/scheduler/cmd/scheduler -listen 127.0.0.1:8080
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/pglatch/pglatch/examples/scheduler"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address; the program has no authentication")
	config := scheduler.Config{DSN: os.Getenv("DATABASE_URL"), Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	flag.StringVar(&config.Node, "node", "", "name of this node (the host's)")
	flag.StringVar(&config.Mount, "mount", "", "directory that all nodes share, and that must be mounted; empty = not checked")
	flag.Parse()
	if err := run(*listen, config); err != nil {
		config.Logger.Error("failed", slog.Any("error", err))
		os.Exit(1)
	}
}

func run(listen string, config scheduler.Config) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	node, err := scheduler.Open(ctx, config)
	if err != nil {
		return err
	}
	defer node.Close()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", listener.Addr())
	return node.Serve(ctx, listener)
}
