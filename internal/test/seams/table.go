package seams

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Table is a page with a section for each feature or product, and a row in it for everything that it meets.
type Table struct {
	Page     string
	Rows     []string // each section has one row for each of them
	Pairs    bool     // each section has a row for each section below it, too
	Controls bool     // a third column names the control of each row
}

// Tables are the pages whose cells name tests.
var Tables = []Table{
	{Page: "docs/reference/seams.md", Rows: surroundings, Pairs: true},
	{Page: "docs/reference/faults.md", Rows: faults, Controls: true},
}

// surroundings are what each feature is combined with, apart from the other features.
var surroundings = []string{
	"poolers", "standby", "promotion", "two clients", "two databases", "two versions", "hostile role", "old schema", "stopped process", "slow server", "resend",
}

// faults are what happens to each product.
var faults = []string{
	"killed process", "stopped process", "suspended machine", "silent network", "reset connection", "ended session", "cancel request",
	"restarted server", "crashed server", "promoted standby", "standby out of reach", "shared sessions of a pooler", "lost answer", "late answer",
	"changed clock of the server", "changed clock of the client", "full disk", "damaged or restored data", "exhausted server",
	"missing rights or tables", "misbehaving user code", "one identity twice",
}

// A Cell lists the tests of a feature in one combination.
type Cell struct {
	Feature, Meets string
	Cannot         bool     // the two cannot be combined; the tests check the refusal
	Tests          []string // "advisory.TestName" or "cmd/internal/lockcmd.TestScript/script", by the directory of the package
	Controls       []string // further tests, which show the fault without the protection
	Inside         bool     // one of Tests contains its control
}

const test = "`[a-z0-9/]+\\.Test[A-Za-z0-9_]+(?:/[a-z0-9_]+)?`"

var (
	named    = regexp.MustCompile(test)
	held     = regexp.MustCompile("^(cannot meet: )?" + test + "(, " + test + ")*$")
	untested = regexp.MustCompile(`^no test: .+`)
	control  = regexp.MustCompile("^(no control: .+|(in the test|" + test + ")(, " + test + ")*)$")
)

// ReadPage returns the features and cells of the table's page in the tree at root.
func (t Table) ReadPage(root string) (features []string, cells []Cell, err error) {
	file, err := os.Open(filepath.Join(root, filepath.FromSlash(t.Page)))
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = file.Close() }()
	return t.Read(file)
}

// Read returns the features, in their order, and the cells. A row that names no test is an error. If the table has controls,
// a row may give a reason instead.
func (t Table) Read(r io.Reader) (features []string, cells []Cell, err error) {
	columns := 2
	if t.Controls {
		columns = 3
	}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "## "); ok {
			features = append(features, name)
		}
		fields := strings.Split(line, "|")
		if len(fields) != columns+2 || len(features) == 0 || strings.HasPrefix(line, "|---") || strings.TrimSpace(fields[2]) == "held by" {
			continue
		}
		c := Cell{Feature: features[len(features)-1], Meets: strings.TrimSpace(fields[1])}
		if err := t.read(&c, fields[2:]); err != nil {
			return nil, nil, fmt.Errorf("%s × %s: %w", c.Feature, c.Meets, err)
		}
		cells = append(cells, c)
	}
	return features, cells, lines.Err()
}

// read sets the tests of a cell by the columns of its row after the first.
func (t Table) read(c *Cell, fields []string) error {
	by, ctrl := strings.TrimSpace(fields[0]), strings.TrimSpace(fields[1])
	switch {
	case t.Controls && untested.MatchString(by) && ctrl == "":
		return nil
	case !held.MatchString(by):
		return fmt.Errorf("%q: name tests as `directory.TestName`, with commas between, and \"cannot meet: \" before those of a refusal", by)
	case t.Controls && !control.MatchString(ctrl):
		return fmt.Errorf("control %q: name tests, or say \"in the test\" or \"no control: why\"", ctrl)
	}
	c.Cannot = strings.HasPrefix(by, "cannot meet: ")
	c.Tests = NamesIn(by)
	if t.Controls && !strings.HasPrefix(ctrl, "no control: ") {
		c.Controls, c.Inside = NamesIn(ctrl), strings.HasPrefix(ctrl, "in the test")
	}
	return nil
}

// NamesIn returns the names of tests in a text.
func NamesIn(text string) (tests []string) {
	for _, match := range named.FindAllString(text, -1) {
		tests = append(tests, strings.Trim(match, "`"))
	}
	return tests
}

// Missing returns the pairs without a cell.
func (t Table) Missing(features []string, cells []Cell) (pairs []string) {
	for i, f := range features {
		rows := t.Rows
		if t.Pairs {
			rows = slices.Concat(rows, features[i+1:])
		}
		for _, meets := range rows {
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
