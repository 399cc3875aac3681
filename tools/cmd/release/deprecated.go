package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"strings"
)

// deprecated returns the names of a package with a paragraph "Deprecated:": "Name", "Type.Method", "Type.Field".
func deprecated(dir string) (map[string]bool, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		noteNames(names, file)
	}
	return names, nil
}

// noteNames notes the deprecated names of a file.
func noteNames(names map[string]bool, file *ast.File) {
	group, typ := false, "" // the group is deprecated as a whole; the type around fields and methods
	note := func(deprecated bool, of string, idents ...*ast.Ident) {
		for _, ident := range idents {
			if deprecated {
				names[of+ident.Name] = true
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			note(isDeprecated(n.Doc), receiver(n), n.Name)
			return false
		case *ast.GenDecl:
			group = isDeprecated(n.Doc)
		case *ast.ValueSpec:
			note(group || isDeprecated(n.Doc), "", n.Names...)
			return false
		case *ast.TypeSpec:
			note(group || isDeprecated(n.Doc), "", n.Name)
			typ = n.Name.Name
		case *ast.Field:
			note(isDeprecated(n.Doc), typ+".", n.Names...)
		}
		return true
	})
}

func isDeprecated(doc *ast.CommentGroup) bool {
	return doc != nil && strings.Contains("\n"+doc.Text(), "\nDeprecated: ")
}

// receiver returns "Type." of a method, and "" of a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	name, _, _ := strings.Cut(strings.TrimLeft(types.ExprString(d.Recv.List[0].Type), "(*"), "[")
	return strings.TrimRight(name, ")") + "."
}

var (
	removedName = regexp.MustCompile(`^- (?:\./(?:[\w-]+/)*[\w-]+\.)?([^:,]+)[^:]*: removed`)
	pointer     = strings.NewReplacer("(*", "", ")", "")
)

// removed returns the name that a line of apidiff says is removed, as deprecated returns names.
func removed(line string) (name string, ok bool) {
	m := removedName.FindStringSubmatch(line)
	if m == nil || strings.HasPrefix(m[1], "package ") {
		return "", false
	}
	return pointer.Replace(m[1]), true
}
