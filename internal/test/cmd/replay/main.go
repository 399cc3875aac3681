// Command replay checks a run that a test has written, and draws it as a page.
//
//	go run ./internal/test/cmd/replay FILE.jsonl
//
// The page is FILE.html. The exit code is 1 if the run is refused.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/pglatch/pglatch/internal/test/trace"
	"github.com/pglatch/pglatch/spec/check"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: replay FILE")
		os.Exit(2)
	}
	legal, err := replay(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(2)
	}
	if !legal {
		os.Exit(1)
	}
}

func replay(name string) (legal bool, err error) {
	file, err := os.Open(name)
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	run, err := trace.Decode(file)
	if err != nil {
		return false, err
	}
	checked, events, err := check.Named(run)
	if err != nil {
		return false, err
	}
	refused := checked(events)
	page := strings.TrimSuffix(name, ".jsonl") + ".html"
	out, err := os.Create(page)
	if err != nil {
		return false, err
	}
	if err := check.Draw(out, name, events, refused); err != nil {
		return false, err
	}
	if err := out.Close(); err != nil {
		return false, err
	}
	verdict := any("the run is legal")
	if refused != nil {
		verdict = refused
	}
	fmt.Printf("%d events: %v\npicture: %s\n", len(events), verdict, page)
	return refused == nil, nil
}
