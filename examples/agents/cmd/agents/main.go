// Command agents serves the hooks of coding agents. Start as many as you like on one
// database:
//
//	DATABASE_URL=postgres://… go run ./examples/agents/cmd/agents -listen 127.0.0.1:8080
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

	"github.com/pglatch/pglatch/examples/agents"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address; the program has no authentication")
	replica := flag.String("replica", "", "name of this process (the host's)")
	transcripts := flag.String("transcripts", "", "directory of the agents' transcripts, <session_id>.txt")
	skills := flag.String("skills", "", "file of the skills that each agent gets with the answer to a hook, once; read again each time")
	config := flag.String("config", "", "JSON file that PATCH /api/config edits")
	flag.Parse()

	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	err := run(*listen, agents.Config{
		DSN: os.Getenv("DATABASE_URL"), Replica: *replica, TranscriptDir: *transcripts, ConfigPath: *config,
		Skills: readSkills(*skills), Logger: logger,
	})
	if err != nil {
		logger.Error("failed", slog.Any("error", err))
		os.Exit(1)
	}
}

// readSkills reads the file whenever it is asked: an edit counts from the next hook on.
func readSkills(file string) func(context.Context, *agents.Agent) (string, error) {
	if file == "" {
		return nil
	}
	return func(context.Context, *agents.Agent) (string, error) {
		text, err := os.ReadFile(file)
		return string(text), err
	}
}

func run(listen string, config agents.Config) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	app, err := agents.Open(ctx, config)
	if err != nil {
		return err
	}
	defer app.Close()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", listener.Addr())
	return app.Serve(ctx, listener)
}
