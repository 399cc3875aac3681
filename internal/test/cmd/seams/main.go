// Command seams proves that the tests of docs/reference/seams.md ran and passed:
//
//	PGLATCH_TEST_RESULTS=results make test integration
//	go run ./internal/test/cmd/seams results
//
// It prints the tests that did not, and then exits with 1. It runs in the root of the tree.
package main

import (
	"fmt"
	"os"

	"github.com/pglatch/pglatch/internal/test/seams"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: seams RESULTS")
		os.Exit(2)
	}
	tests, err := unproved("docs/reference/seams.md", os.Args[1])
	if err != nil {
		fmt.Fprintf(os.Stderr, "seams: %v\n", err)
		os.Exit(1)
	}
	for _, test := range tests {
		fmt.Println(test)
	}
	if len(tests) > 0 {
		fmt.Fprintf(os.Stderr, "seams: %d tests of docs/reference/seams.md did not pass in this run\n", len(tests))
		os.Exit(1)
	}
}

func unproved(table, results string) ([]string, error) {
	t, err := os.Open(table)
	if err != nil {
		return nil, err
	}
	defer func() { _ = t.Close() }()
	_, cells, err := seams.Read(t)
	if err != nil {
		return nil, err
	}
	r, err := os.Open(results)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	return seams.Unproved(cells, r)
}
