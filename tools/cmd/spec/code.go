package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// codeLine matches a reference to code: a Go function, as "internal/pgsession.(*Session).lose", or a file and its SQL
// function, as "lease/postgres/schema/guard.sql pglatch_lease.guard".
var codeLine = regexp.MustCompile(`(?m)^\s*// code: (.+)$`)

// references returns what the comments of a model refer to.
func (m model) references() (names []string) {
	for _, found := range codeLine.FindAllStringSubmatch(m.source, -1) {
		names = append(names, found[1])
	}
	return names
}

// missing returns an error if there is no function with this name below root.
func missing(root, name string) error {
	if file, function, ok := strings.Cut(name, ".sql "); ok {
		source, err := os.ReadFile(filepath.Join(root, file+".sql"))
		if err != nil {
			return err
		}
		if !strings.Contains(string(source), "FUNCTION "+function+"(") {
			return fmt.Errorf("%s.sql has no function %s", file, function)
		}
		return nil
	}
	slash := strings.LastIndex(name, "/")
	pkg, function, ok := strings.Cut(name[slash+1:], ".")
	if !ok {
		return fmt.Errorf("%q is no function", name)
	}
	dir := name[:slash+1] + pkg
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range parsed.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && nameOf(f) == function {
				return nil
			}
		}
	}
	return fmt.Errorf("%s has no function %s", dir, function)
}

// nameOf returns a function's name in its package, as "Settings", "shape.try" or "(*Session).lose".
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	switch t := f.Recv.List[0].Type.(type) {
	case *ast.Ident:
		return t.Name + "." + f.Name.Name
	case *ast.StarExpr:
		if id, ok := t.X.(*ast.Ident); ok {
			return "(*" + id.Name + ")." + f.Name.Name
		}
	}
	return f.Name.Name
}
