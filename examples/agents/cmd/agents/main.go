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
	"syscall"

	"github.com/pglatch/pglatch/examples/agents"
)

func main() {
	host, _ := os.Hostname() // "" on an error
	config := agents.Config{DSN: os.Getenv("DATABASE_URL"), Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	listen := flag.String("listen", "127.0.0.1:8080", "address; other hosts need one of the tokens of -token-file")
	tokenFile := flag.String("token-file", "", "file of bearer tokens, one a line, of which every request needs one; read again on SIGHUP")
	transcripts := flag.String("transcripts", "", "directory of the agents' transcripts, <session_id>.txt")
	skills := flag.String("skills", "", "file of the skills that each agent gets with the answer to a hook, once; read again each time")
	flag.StringVar(&config.Replica, "replica", host, "name of this process")
	flag.StringVar(&config.ConfigPath, "config", "", "JSON file that PATCH /api/config edits")
	flag.Parse()
	if *skills != "" {
		config.Skills = func(context.Context, *agents.Agent) (string, error) {
			text, err := os.ReadFile(*skills)
			return string(text), err
		}
	}
	if err := run(*listen, *tokenFile, *transcripts, config); err != nil {
		config.Logger.Error("failed", slog.Any("error", err))
		os.Exit(1)
	}
}

func run(listen, tokenFile, transcripts string, config agents.Config) (err error) {
	if config.Tokens, err = readTokens(tokenFile); err != nil {
		return err
	}
	if transcripts != "" {
		root, err := os.OpenRoot(transcripts)
		if err != nil {
			return err
		}
		defer root.Close() //nolint:errcheck // only read from
		config.Transcripts = root.FS()
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
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	go func() { // until the process ends
		for range again { // if the file is invalid, nothing changes
			tokens, err := readTokens(tokenFile)
			if err == nil {
				err = app.ReplaceTokens(tokens)
			}
			config.Logger.Info("tokens_read", slog.Any("error", err))
		}
	}()
	return app.Serve(ctx, listener)
}

// readTokens returns the words of the file, or none if there is no file.
func readTokens(file string) ([]string, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	tokens := strings.Fields(string(text))
	if err == nil && len(tokens) == 0 {
		err = fmt.Errorf("%s has no token", file)
	}
	return tokens, err
}
