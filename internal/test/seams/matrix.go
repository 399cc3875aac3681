package seams

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A column of the matrix is a product, or a product in one mode.
type column struct {
	title, product string
	runs           func(Test) bool // whether a test runs in the mode; nil = all do
}

// ci is on which versions of PostgreSQL CI runs the packages.
type ci struct {
	newest string
	served []string // versions that run the packages that send SQL
	sql    []string // those packages, as patterns of the go command
}

var (
	ofNewest = regexp.MustCompile(`(?m)^step env PGLATCH_PG_VERSION=(\d+) make test$`)
	ofServed = regexp.MustCompile(`(?m)^step make test-servers ON="?([\d ]*\d)`)
	ofSQL    = regexp.MustCompile(`(?m)^SERVED := (.*)$`)
)

// Matrix returns the header and the rows of fault × product, mode and version, from the page of faults, the tests that it
// names, and the steps of CI.
func Matrix(root string) (header []string, rows [][]string, err error) {
	products, cells, err := Tables[1].ReadPage(root)
	if err != nil {
		return nil, nil, err
	}
	tests, err := Tests(root)
	if err != nil {
		return nil, nil, err
	}
	c, err := readCI(root)
	if err != nil {
		return nil, nil, err
	}
	header = []string{"fault"}
	columns := columnsOf(products)
	for _, column := range columns {
		header = append(header, column.title)
	}
	for _, fault := range faults {
		row := []string{fault}
		for _, column := range columns {
			i := slices.IndexFunc(cells, func(c Cell) bool { return c.Feature == column.product && c.Meets == fault })
			if i < 0 {
				return nil, nil, fmt.Errorf("%s × %s has no row", column.product, fault)
			}
			row = append(row, c.cell(cells[i], tests, column))
		}
		rows = append(rows, row)
	}
	return header, rows, nil
}

// columnsOf returns a column for each product, and two for that with two modes.
func columnsOf(products []string) (columns []column) {
	for _, product := range products {
		if product != "Mutexes" {
			columns = append(columns, column{title: strings.ToLower(product), product: product})
			continue
		}
		columns = append(columns,
			column{"mutexes, one lock per connection", product, func(t Test) bool { return t.Modes || !t.Several }},
			column{"mutexes, several", product, func(t Test) bool { return t.Modes || t.Several }})
	}
	return columns
}

func readCI(root string) (c ci, err error) {
	run, err := os.ReadFile(filepath.Join(root, ".ci", "run"))
	if err != nil {
		return c, err
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		return c, err
	}
	newest, served, sql := ofNewest.FindSubmatch(run), ofServed.FindSubmatch(run), ofSQL.FindSubmatch(makefile)
	if newest == nil || served == nil || sql == nil {
		return c, errors.New("the steps make test and make test-servers of .ci/run, or SERVED in the Makefile, are not there")
	}
	return ci{string(newest[1]), strings.Fields(string(served[1])), strings.Fields(string(sql[1]))}, nil
}

// cell says on which versions the tests of a cell run. A version is in parentheses if no control runs on it.
func (c ci) cell(cell Cell, tests map[string]Test, of column) string {
	held, shown := map[string]bool{}, map[string]bool{}
	add := func(to map[string]bool, name string) {
		if of.runs == nil || of.runs(tests[name]) {
			for _, v := range c.versions(name, tests[name]) {
				to[v] = true
			}
		}
	}
	for _, name := range cell.Tests {
		add(held, name)
		if cell.Inside && tests[name].Control {
			add(shown, name)
		}
	}
	for _, name := range cell.Controls {
		add(shown, name)
	}
	var all []string
	for _, v := range append(c.all(), without) {
		switch {
		case !held[v], v == without && len(held) > 1: // it runs beside every version
		case shown[v] || shown[without]:
			all = append(all, v)
		default:
			all = append(all, "("+v+")")
		}
	}
	if all == nil {
		return "none"
	}
	return strings.Join(all, ", ")
}

// all are the versions of CI.
func (c ci) all() []string {
	if slices.Contains(c.served, c.newest) {
		return c.served
	}
	return append(slices.Clone(c.served), c.newest)
}

// without is instead of a version where a test needs no PostgreSQL.
const without = "any"

// versions are those on which CI runs a test.
func (c ci) versions(name string, t Test) []string {
	dir := name[:strings.LastIndex(name, ".Test")]
	if !t.Server {
		return []string{without}
	}
	for _, pattern := range c.sql {
		pattern = strings.TrimPrefix(pattern, "./")
		parent, below := strings.CutSuffix(pattern, "/...")
		if dir == parent || below && strings.HasPrefix(dir, path.Clean(parent)+"/") {
			return c.all()
		}
	}
	return []string{c.newest}
}
