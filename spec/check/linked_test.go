package check_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/spec/check"
)

// The linker compares no types.
func TestLinkedTypesAreThoseOfTheMachines(t *testing.T) {
	t.Parallel()
	for name, ours := range check.Linked {
		file, typeName, _ := strings.Cut(name, " ")
		of := reflect.TypeOf(ours)
		theirs := typeIn(t, file, typeName)
		if of.Kind() != reflect.Struct {
			assert.Equal(t, of.Kind().String(), types.ExprString(theirs), name)
			continue
		}
		var want, got []string
		for _, f := range theirs.(*ast.StructType).Fields.List {
			for _, n := range f.Names {
				want = append(want, n.Name+" "+types.ExprString(f.Type))
			}
			if len(f.Names) == 0 {
				want = append(want, "embeds "+types.ExprString(f.Type))
			}
		}
		for f := range of.Fields() {
			text := f.Name + " " + f.Type.String()
			if f.Anonymous {
				text = "embeds " + f.Type.String()
			}
			got = append(got, text)
		}
		// Package leader has its own names for these types.
		as := strings.NewReplacer("leader.State", "State", "check.", "", " uint8", " input")
		assert.Equal(t, want, words(as, got, typeName), name)
	}
}

// words translates our names of types. A row's to is a destination, and its input an input.
func words(as *strings.Replacer, fields []string, of string) (all []string) {
	for _, f := range fields {
		f = as.Replace(f)
		if of == "row" && strings.HasPrefix(f, "to ") {
			f = "to destination"
		}
		all = append(all, f)
	}
	return all
}

func TestLinkedActionsHaveTheirNumbers(t *testing.T) {
	t.Parallel()
	require.Greater(t, check.TableSize(), 20, "the machine is not linked")
	numbers := make(map[string]int)
	for _, decl := range parsed(t, "leader/machine.go").Decls {
		if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.CONST {
			for i, spec := range d.Specs {
				for _, n := range spec.(*ast.ValueSpec).Names {
					numbers[n.Name] = i
				}
			}
		}
	}
	for name, n := range check.Actions {
		assert.Equal(t, numbers[name], n, name)
	}
}

func parsed(t *testing.T, file string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", file), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	return f
}

func typeIn(t *testing.T, file, name string) ast.Expr {
	t.Helper()
	for _, decl := range parsed(t, file).Decls {
		if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.TYPE {
			for _, spec := range d.Specs {
				if s := spec.(*ast.TypeSpec); s.Name.Name == name {
					return s.Type
				}
			}
		}
	}
	require.Fail(t, "no such type", "%s in %s", name, file)
	return nil
}
