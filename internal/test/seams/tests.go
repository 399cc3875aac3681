package seams

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// scripts is where clitest.Scripts finds the scripts of a package.
const scripts = "testdata/script"

// Tests returns the tests of the tree below root, in all modules and with any build tags: "advisory.TestName", by
// the directory of the package, and "cmd/internal/lockcmd.TestScript/run" for a script. The value is true if the test
// begins with a skip, so that it never runs.
func Tests(root string) (map[string]bool, error) {
	tests := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || path != root && strings.HasPrefix(d.Name(), ".")):
			return filepath.SkipDir
		case d.IsDir() && d.Name() == "testdata":
			if err := addScripts(tests, root, filepath.Dir(path)); err != nil {
				return err
			}
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
				tests[filepath.ToSlash(dir)+"."+f.Name.Name] = skips(f)
			}
		}
		return nil
	})
	return tests, err
}

// addScripts adds the scripts of the package in dir.
func addScripts(tests map[string]bool, root, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, scripts, "*.txtar"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, dir)
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(filepath.Base(file), ".txtar")
		tests[filepath.ToSlash(rel)+".TestScript/"+name] = alwaysSkips.Match(text)
	}
	return nil
}

// alwaysSkips matches a script with a skip that has no condition.
var alwaysSkips = regexp.MustCompile(`(?m)^(skip|stop)\b`)

// skips reports whether a statement of the function itself, outside of any condition, skips it.
func skips(f *ast.FuncDecl) bool {
	for _, s := range f.Body.List {
		e, ok := s.(*ast.ExprStmt)
		if !ok {
			continue
		}
		call, ok := e.X.(*ast.CallExpr)
		if !ok {
			continue
		}
		if fun, ok := call.Fun.(*ast.SelectorExpr); ok && (fun.Sel.Name == "Skip" || fun.Sel.Name == "Skipf" || fun.Sel.Name == "SkipNow") {
			return true
		}
	}
	return false
}
