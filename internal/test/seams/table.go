package seams

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// Surroundings are what each feature is combined with, apart from the other features.
var Surroundings = []string{
	"poolers", "standby", "promotion", "two clients", "two databases", "two versions", "hostile role", "old schema", "stopped process", "slow server", "resend",
}

// A Cell lists the tests of a feature in one combination.
type Cell struct {
	Feature, Meets string
	Cannot         bool     // the two cannot be combined; the tests check the refusal
	Tests          []string // "advisory.TestName" or "cmd/internal/lockcmd.TestScript/script", by the directory of the package
}

var (
	named = regexp.MustCompile("`([a-z0-9/]+\\.Test[A-Za-z0-9_]+(?:/[a-z0-9_]+)?)`")
	junk  = regexp.MustCompile("^(cannot meet: )?(" + named.String() + ")(, " + named.String() + ")*$")
)

// Read returns the features, in their order, and the cells. A row that names no test is an error.
func Read(r io.Reader) (features []string, cells []Cell, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "## "); ok {
			features = append(features, name)
		}
		fields := strings.Split(line, "|")
		if len(fields) != 4 || len(features) == 0 || strings.HasPrefix(line, "|---") || strings.TrimSpace(fields[1]) == "meets" {
			continue
		}
		c := Cell{Feature: features[len(features)-1], Meets: strings.TrimSpace(fields[1])}
		held := strings.TrimSpace(fields[2])
		if !junk.MatchString(held) {
			return nil, nil, fmt.Errorf("%s × %s: %q: name tests as `directory.TestName`, with commas between, and \"cannot meet: \" before those of a refusal", c.Feature, c.Meets, held)
		}
		c.Cannot = strings.HasPrefix(held, "cannot meet: ")
		for _, match := range named.FindAllStringSubmatch(held, -1) {
			c.Tests = append(c.Tests, match[1])
		}
		cells = append(cells, c)
	}
	return features, cells, lines.Err()
}

// Missing returns the pairs without a cell: each feature needs one for all surroundings, and for each feature
// after it.
func Missing(features []string, cells []Cell) (pairs []string) {
	for i, f := range features {
		for _, meets := range slices.Concat(Surroundings, features[i+1:]) {
			n := 0
			for _, c := range cells {
				if c.Feature == f && c.Meets == meets {
					n++
				}
			}
			if n != 1 {
				pairs = append(pairs, fmt.Sprintf("%s × %s: %d rows", f, meets, n))
			}
		}
	}
	return pairs
}
