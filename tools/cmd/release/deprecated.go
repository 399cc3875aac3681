package main

import (
	"go/ast"
	"go/parser"
	"go/token"
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
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if isDeprecated(d.Doc) {
					names[receiver(d)+d.Name.Name] = true
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					noteSpec(names, spec, isDeprecated(d.Doc))
				}
			}
		}
	}
	return names, nil
}

// noteSpec notes the names of a declaration. all = the whole group is deprecated.
func noteSpec(names map[string]bool, spec ast.Spec, all bool) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, name := range s.Names {
			if all || isDeprecated(s.Doc) {
				names[name.Name] = true
			}
		}
	case *ast.TypeSpec:
		if all || isDeprecated(s.Doc) {
			names[s.Name.Name] = true
		}
		var fields *ast.FieldList
		switch t := s.Type.(type) {
		case *ast.StructType:
			fields = t.Fields
		case *ast.InterfaceType:
			fields = t.Methods
		default:
			return
		}
		for _, field := range fields.List {
			for _, name := range field.Names {
				if isDeprecated(field.Doc) {
					names[s.Name.Name+"."+name.Name] = true
				}
			}
		}
	}
}

func isDeprecated(doc *ast.CommentGroup) bool {
	return doc != nil && strings.Contains("\n"+doc.Text(), "\nDeprecated: ")
}

// receiver returns "Type." of a method, and "" of a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	t := d.Recv.List[0].Type
	for {
		switch of := t.(type) {
		case *ast.StarExpr:
			t = of.X
		case *ast.IndexExpr:
			t = of.X
		case *ast.IndexListExpr:
			t = of.X
		case *ast.Ident:
			return of.Name + "."
		default:
			return ""
		}
	}
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
