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

// A Test is what its source says of it.
type Test struct {
	Skipped bool // it begins with a skip, so that it never runs
	Control bool // it says that it has, or is, a control
	Server  bool // its package uses PostgreSQL
	Modes   bool // it runs in each mode of locks, or below them
	Several bool // otherwise: it sets how many locks a connection carries
}

// Tests returns the tests of the tree below root, in all modules and with any build tags: "advisory.TestName", by
// the directory of the package, and "cmd/internal/lockcmd.TestScript/run" for a script.
func Tests(root string) (map[string]Test, error) {
	tests, servers := map[string]Test{}, map[string]bool{}
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
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, text, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, i := range file.Imports {
			if strings.HasPrefix(i.Path.Value, `"`+module+"internal/test/pgtest") {
				servers[filepath.ToSlash(dir)] = true
			}
		}
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") && f.Name.Name != "TestMain" {
				first := f.Pos()
				if f.Doc != nil {
					first = f.Doc.Pos()
				}
				source := text[files.Position(first).Offset:files.Position(f.End()).Offset]
				tests[filepath.ToSlash(dir)+"."+f.Name.Name] = Test{
					Skipped: skips(f), Control: saysControl.Match(source), Several: setsMode.Match(source),
					Modes: runsInModes.Match(source) || strings.HasPrefix(filepath.ToSlash(dir), "internal/"),
				}
			}
		}
		return nil
	})
	for name, test := range tests {
		test.Server = servers[name[:strings.LastIndex(name, ".Test")]]
		tests[name] = test
	}
	return tests, err
}

// addScripts adds the scripts of the package in dir.
func addScripts(tests map[string]Test, root, dir string) error {
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
		tests[filepath.ToSlash(rel)+".TestScript/"+name] = Test{Skipped: alwaysSkips.Match(text)}
	}
	return nil
}

// saysControl matches the source of a test that has a control, or is one.
var saysControl = regexp.MustCompile(`(?i)\bcontrols?\b`)

// runsInModes matches the source of a test that runs in each mode of locks, and setsMode that of one that sets its mode.
var (
	runsInModes = regexp.MustCompile(`\b(inBothModes|inBubble|lockmode\.(Run|InTurn))\(`)
	setsMode    = regexp.MustCompile(`\bLocksPerConn\b`)
)

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
