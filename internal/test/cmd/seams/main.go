// Command seams proves that the tests of docs/reference/seams.md and docs/reference/faults.md ran and passed:
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
	failed := false
	for _, table := range seams.Tables {
		tests, err := unproved(table, os.Args[1])
		if err != nil {
			fmt.Fprintf(os.Stderr, "seams: %v\n", err)
			os.Exit(1)
		}
		for _, test := range tests {
			fmt.Println(test)
		}
		if len(tests) > 0 {
			failed = true
			fmt.Fprintf(os.Stderr, "seams: %d tests of %s did not pass in this run\n", len(tests), table.Page)
		}
	}
	if failed {
		os.Exit(1)
	}
}

func unproved(table seams.Table, results string) ([]string, error) {
	_, cells, err := table.ReadPage(".")
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
