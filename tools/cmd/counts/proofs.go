package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// A proof is one kind of what shows that the product works: its plural, and how many there are.
type proof struct {
	name string
	n    int
}

// proofs are what docs/explanation/how-it-is-tested.md has figures of, by their names.
type proofs map[string]int

// The names of proofs, in the order in which they are printed.
var kindsOfProof = []string{
	"tests", "controls", "test scripts", "examples", "fuzz targets", "benchmarks", "faulty variants", "models", "checks of models", "mutants of models",
	"faults with tests", "faults with controls", "faults of the past",
}

func (p proofs) list() (list []proof) {
	for _, name := range kindsOfProof {
		list = append(list, proof{name, p[name]})
	}
	return list
}

var (
	saysControl = regexp.MustCompile(`(?i)\bcontrols?\b`)
	otherSense  = regexp.MustCompile(`(?i)cache-control|control character`)
	findsFaulty = regexp.MustCompile(`^TestThe(Suite|Exploration)Finds|^TestEachMutantIsFound`)
	check       = regexp.MustCompile(`(?m)^// (check|live) \w+: `)
	mutant      = regexp.MustCompile("(?m)^\\| \\w+ \\| `[A-Z0-9_]+` \\|")
	faultRow    = regexp.MustCompile("(?m)^\\| [a-z ]+ \\| `[a-z0-9/]+\\.Test")
	faultBare   = regexp.MustCompile(`(?m)^\|[^|]+\|[^|]+\| no control: `)
	pastRow     = regexp.MustCompile(`(?m)^\| .+ \| .+ \| .+ \| .+ \| (yes|no|partly) \|$`)
)

// add counts what one file proves.
func (p proofs) add(dir, name string) error {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	matches := func(r *regexp.Regexp) int { return len(r.FindAll(text, -1)) }
	switch {
	case strings.HasSuffix(name, script):
		p["test scripts"]++
	case strings.HasSuffix(name, ".pml"):
		p["models"]++
		p["checks of models"] += matches(check)
	case name == "spec/README.md":
		p["mutants of models"] += matches(mutant)
	case name == "docs/reference/faults.md":
		p["faults with tests"] += matches(faultRow)
		p["faults with controls"] += matches(faultRow) - matches(faultBare)
	case strings.HasPrefix(name, "docs/track-record"):
		p["faults of the past"] += matches(pastRow)
	case strings.HasSuffix(name, "_test.go"):
		return p.addTests(name, text)
	}
	return nil
}

// addTests counts the functions of a test file.
func (p proofs) addTests(name string, text []byte) error {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, text, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		of := func(prefix string) bool { return f.Recv == nil && strings.HasPrefix(f.Name.Name, prefix) }
		switch {
		case of("Test") && f.Name.Name != "TestMain":
			p["tests"]++
			first := f.Pos()
			if f.Doc != nil {
				first = f.Doc.Pos()
			}
			if saysControl.Match(otherSense.ReplaceAll(text[files.Position(first).Offset:files.Position(f.End()).Offset], nil)) {
				p["controls"]++
			}
			if findsFaulty.MatchString(f.Name.Name) {
				p["faulty variants"] += max(entries(f.Body), entriesOfVariable(file, "mutants"))
			}
		case of("Example"):
			p["examples"]++
		case of("Fuzz"):
			p["fuzz targets"]++
		case of("Benchmark"):
			p["benchmarks"]++
		}
	}
	return nil
}

// entries returns the length of the longest literal of a list or a map: the faults that a test puts in, one by one.
func entries(in ast.Node) (n int) {
	ast.Inspect(in, func(node ast.Node) bool {
		if literal, ok := node.(*ast.CompositeLit); ok {
			n = max(n, len(literal.Elts))
		}
		return true
	})
	return n
}

func entriesOfVariable(file *ast.File, name string) int {
	for _, d := range file.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.VAR {
			continue
		}
		for _, s := range g.Specs {
			if v, ok := s.(*ast.ValueSpec); ok && v.Names[0].Name == name {
				return entries(v)
			}
		}
	}
	return 0
}
