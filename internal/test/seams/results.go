package seams

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
)

const module = "github.com/pglatch/pglatch/"

// Unproved returns the tests of the cells that did not pass in a run, according to the results of command gotest.
// A test that passed once proves its cell, even if another run skipped it.
func Unproved(cells []Cell, results io.Reader) (tests []string, err error) {
	last := map[string]string{}
	lines := bufio.NewScanner(results)
	for lines.Scan() {
		fields := strings.Split(lines.Text(), "\t")
		if len(fields) < 3 {
			return nil, fmt.Errorf("%q is no line of results", lines.Text())
		}
		test := strings.TrimPrefix(fields[1], module) + "." + fields[2]
		if last[test] != "pass" {
			last[test] = fields[0]
		}
	}
	for _, c := range cells {
		for _, test := range slices.Concat(c.Tests, c.Controls) {
			if result := last[test]; result != "pass" {
				if result == "" {
					result = "not run"
				}
				tests = append(tests, fmt.Sprintf("%s (%s)", test, result))
			}
		}
	}
	slices.Sort(tests)
	return slices.Compact(tests), lines.Err()
}
