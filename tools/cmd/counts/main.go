// Command counts prints the size of the repository in its working directory: lines of Go by class, modules, and how many tests, models
// and other proofs there are.
//
//	go run -C tools ./cmd/counts ..
//
// A class is the product, its tests, or what surrounds them: test helpers, models, conformance suites, examples, tools and the bench. Only files
// that Git knows count. A line of code is a line with a token other than a comment. The scripts of tests (*.txtar) are tests. Each of
// their lines is code, unless it is blank or begins with #.
package main

import (
	"context"
	"fmt"
	"go/scanner"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// aroundTests matches directories of helpers, models, suites, examples, tools and the bench.
var aroundTests = regexp.MustCompile(`^(internal/test|internal/judge|spec|examples|tools|integration)(/|$)|(test|testdata|integration)(/|$)`)

// script ends the name of a script of a test.
const script = ".txtar"

type class struct {
	name               string
	files, lines, code int
}

type counts struct {
	product, around, tests class
	modules                int
	proofs                 proofs
}

func main() {
	dir := "."
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	c, err := count(dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "counts:", err)
		os.Exit(1)
	}
	fmt.Printf("%-34s %7s %7s %14s\n", "", "files", "lines", "lines of code")
	for _, class := range []class{c.product, c.around, c.tests} {
		fmt.Printf("%-34s %7d %7d %14d\n", class.name, class.files, class.lines, class.code)
	}
	fmt.Println("modules:", c.modules)
	for _, p := range c.proofs.list() {
		fmt.Printf("%s: %d\n", p.name, p.n)
	}
}

// count reads all files of a repository that Git knows.
func count(dir string) (counts, error) {
	c := counts{product: class{name: "product"}, around: class{name: "helpers, suites, examples, bench"}, tests: class{name: "tests"}, proofs: proofs{}}
	list, err := exec.CommandContext(context.Background(), "git", "-C", dir, "ls-files", "*.go", "*go.mod", "*"+script, "*.pml", "*.md").Output()
	if err != nil {
		return c, err
	}
	for name := range strings.Lines(string(list)) {
		name = strings.TrimSpace(name)
		if strings.HasSuffix(name, "go.mod") {
			c.modules++
			continue
		}
		if err := c.proofs.add(dir, name); err != nil {
			return c, err
		}
		if !strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, script) {
			continue
		}
		source, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return c, err
		}
		in := c.classOf(name)
		in.files++
		in.lines += strings.Count(string(source), "\n")
		if strings.HasSuffix(name, script) {
			in.code += linesOfScript(string(source))
		} else {
			in.code += linesOfCode(source)
		}
	}
	return c, nil
}

func (c *counts) classOf(name string) *class {
	switch {
	case strings.HasSuffix(name, "_test.go"), strings.HasSuffix(name, script):
		return &c.tests
	case aroundTests.MatchString(filepath.ToSlash(filepath.Dir(name))):
		return &c.around
	}
	return &c.product
}

// linesOfScript counts the lines that are neither blank nor a comment.
func linesOfScript(text string) (n int) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			n++
		}
	}
	return n
}

// linesOfCode counts the lines that have a token. The lines of a raw string all count.
func linesOfCode(source []byte) int {
	files := token.NewFileSet()
	file := files.AddFile("", -1, len(source))
	var s scanner.Scanner
	s.Init(file, source, nil, 0)
	lines := map[int]bool{}
	for {
		at, tok, text := s.Scan()
		switch {
		case tok == token.EOF:
			return len(lines)
		case tok == token.SEMICOLON && text == "\n":
			continue
		}
		first := file.Line(at)
		for line := range 1 + strings.Count(text, "\n") {
			lines[first+line] = true
		}
	}
}
