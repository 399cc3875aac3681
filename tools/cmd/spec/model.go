package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A model is one .pml file.
type model struct {
	name   string
	source string
	checks []check
}

// A check is one property of a model, and the bounds at which it is checked.
type check struct {
	name         string
	live         bool // the name is that of an LTL formula, checked with weak fairness
	small, large string
}

// bounds returns the macros to define; "" = the check is not run.
func (c check) bounds(large bool) string {
	bounds := c.small
	if large {
		bounds = c.large
	}
	if bounds == "none" {
		return ""
	}
	return bounds
}

// check returns the check with a name, or one without a name.
func (m model) check(name string) check {
	for _, c := range m.checks {
		if c.name == name {
			return c
		}
	}
	return check{}
}

// A mutant is a model without one of its protections.
type mutant struct {
	name  string // the switch
	model string
	check string // the one that finds it
}

// readModels reads the models of a directory, in the order of their names.
func readModels(dir string) ([]model, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.pml"))
	if err != nil {
		return nil, err
	}
	var models []model
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		m, err := parseModel(strings.TrimSuffix(filepath.Base(file), ".pml"), string(source))
		if err != nil {
			return nil, err
		}
		models = append(models, m)
	}
	return models, nil
}

var checkLine = regexp.MustCompile(`(?m)^// (check|live) (\w+): .+\n//   small: (.+)\n//   large: (.+)$`)

func parseModel(name, source string) (model, error) {
	m := model{name: name, source: source}
	for _, found := range checkLine.FindAllStringSubmatch(source, -1) {
		m.checks = append(m.checks, check{live: found[1] == "live", name: found[2], small: found[3], large: found[4]})
	}
	if len(m.checks) == 0 {
		return m, fmt.Errorf("%s.pml lists no check", name)
	}
	return m, nil
}

var mutantRow = regexp.MustCompile("(?m)^\\| (\\w+) \\| `(\\w+)` \\| .+ \\| (\\w+) \\|$")

// parseMutants reads the rows "| model | `SWITCH` | what it takes away | check |".
func parseMutants(readme string) (mutants []mutant, err error) {
	for _, row := range mutantRow.FindAllStringSubmatch(readme, -1) {
		mutants = append(mutants, mutant{model: row[1], name: row[2], check: row[3]})
	}
	if len(mutants) == 0 {
		return nil, errors.New("README.md lists no mutant")
	}
	return mutants, nil
}

var (
	conditions = regexp.MustCompile(`(?m)^#(?:ifdef|ifndef|if|elif) .*$`)
	macro      = regexp.MustCompile(`\b[A-Z][A-Z0-9_]*\b`)
)

// switches returns the macros of a model's conditions that are neither defined in the model nor bounds of a check.
func (m model) switches() []string {
	set := map[string]bool{}
	for _, line := range conditions.FindAllString(m.source, -1) {
		for _, name := range macro.FindAllString(line, -1) {
			set[name] = true
		}
	}
	delete(set, liveMacro)
	for _, c := range m.checks {
		for _, name := range macro.FindAllString(strings.ReplaceAll(c.small+" "+c.large, "-D", " "), -1) {
			delete(set, name)
		}
	}
	for name := range set {
		if strings.Contains(m.source, "#define "+name) {
			delete(set, name)
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// compare returns an error unless each switch of the models is a mutant, and each mutant a switch and a check.
func compare(models []model, mutants []mutant) error {
	var wrong []error
	known := map[string]bool{}
	for _, m := range models {
		for _, name := range m.switches() {
			known[m.name+" "+name] = true
			if !slices.ContainsFunc(mutants, func(mu mutant) bool { return mu.model == m.name && mu.name == name }) {
				wrong = append(wrong, fmt.Errorf("README.md does not list the mutant %s of %s.pml", name, m.name))
			}
		}
		for _, mu := range mutants {
			if mu.model == m.name && m.check(mu.check).bounds(false) == "" {
				wrong = append(wrong, fmt.Errorf("%s.pml has no check %s, or no small bounds for it: it is that of %s", m.name, mu.check, mu.name))
			}
		}
	}
	for _, mu := range mutants {
		if !known[mu.model+" "+mu.name] {
			wrong = append(wrong, fmt.Errorf("%s.pml has no switch %s", mu.model, mu.name))
		}
	}
	return errors.Join(wrong...)
}
