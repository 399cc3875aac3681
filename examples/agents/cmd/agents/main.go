// Command agents serves the hooks of coding agents. Start any number of replicas on one
// database:
//
//	DATABASE_URL=postgres://… go run ./examples/agents/cmd/agents -listen 127.0.0.1:8080
//
// To view its locks from another host, use one of the tokens in a file:
//
//	go run ./examples/agents/cmd/agents -listen :8080 -token-file tokens
//	curl -H "Authorization: Bearer $TOKEN" http://HOST:8080/api/advisory-locks
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/pglatch/pglatch/examples/agents"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "address; one that other hosts can reach needs -token-file")
	tokenFile := flag.String("token-file", "", "file of bearer tokens, one a line, of which every request needs one; read again on SIGHUP")
	replica := flag.String("replica", "", "name of this process (the host's)")
	transcripts := flag.String("transcripts", "", "directory of the agents' transcripts, <session_id>.txt")
	skills := flag.String("skills", "", "file of the skills that each agent gets with the answer to a hook, once; read again each time")
	config := flag.String("config", "", "JSON file that PATCH /api/config edits")
	flag.Parse()

	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	err := run(*listen, *tokenFile, agents.Config{
		DSN: os.Getenv("DATABASE_URL"), Replica: *replica, TranscriptDir: *transcripts, ConfigPath: *config,
		Skills: readSkills(*skills), Logger: logger,
	})
	if err != nil {
		logger.Error("failed", slog.Any("error", err))
		os.Exit(1)
	}
}

// readSkills reads the file on every call, so that an edit counts from the next hook on.
func readSkills(file string) func(context.Context, *agents.Agent) (string, error) {
	if file == "" {
		return nil
	}
	return func(context.Context, *agents.Agent) (string, error) {
		text, err := os.ReadFile(file)
		return string(text), err
	}
}

// readTokens returns the non-empty lines of the file, or none if there is no file.
func readTokens(file string) (tokens []string, err error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if tokens = strings.Fields(string(text)); len(tokens) == 0 {
		return nil, fmt.Errorf("%s has no token", file)
	}
	return tokens, nil
}

// rereadTokens reads the file again on each SIGHUP. If the file is invalid, nothing changes.
func rereadTokens(ctx context.Context, app *agents.App, file string, logger *slog.Logger) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hup:
		}
		tokens, err := readTokens(file)
		if err == nil {
			err = app.ReplaceTokens(tokens)
		}
		logger.Info("tokens_read", slog.Any("error", err))
	}
}

func run(listen, tokenFile string, config agents.Config) (err error) {
	if config.Tokens, err = readTokens(tokenFile); err != nil {
		return err
	}
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
	var rereading sync.WaitGroup
	defer rereading.Wait()
	if tokenFile != "" {
		rereading.Go(func() { rereadTokens(ctx, app, tokenFile, config.Logger) })
	}
	defer stop()
	return app.Serve(ctx, listener)
}
