package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
)

// ofPage returns the paragraphs and list items of a Markdown file, without code blocks, tables and headings.
func ofPage(path string) (all []paragraph, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var now paragraph
	finish := func() {
		if now.text != "" {
			all = append(all, now)
		}
		now = paragraph{}
	}
	fenced := false
	for i, line := range strings.Split(string(text), "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			fenced = !fenced
			finish()
			continue
		}
		item := strings.HasPrefix(trimmed, "- ") || strings.HasPrefix(trimmed, "* ") || len(trimmed) > 2 && trimmed[0] >= '0' && trimmed[0] <= '9' && trimmed[1] == '.'
		switch {
		case fenced, strings.HasPrefix(trimmed, "|"), strings.HasPrefix(trimmed, "#"), trimmed == "", strings.HasPrefix(line, "    ") && now.text == "" && !item:
			finish()
			continue
		case item:
			finish()
			trimmed = strings.TrimLeft(trimmed, "-*0123456789. ")
		}
		if now.text == "" {
			now.line = i + 1
		}
		now.text += trimmed + "\n"
	}
	finish()
	return all, nil
}

// ofSource returns the paragraphs of the doc comments of a Go file: of its package and of what it exports.
func ofSource(path string) (all []paragraph, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	add := func(groups ...*ast.CommentGroup) {
		for _, group := range groups {
			if group != nil {
				all = append(all, ofComment(fset.Position(group.Pos()).Line, group)...)
			}
		}
	}
	add(file.Doc)
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() {
				add(d.Doc)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if spec.Name.IsExported() {
						add(d.Doc, spec.Doc)
						ofFields(spec.Type, add)
					}
				case *ast.ValueSpec:
					if spec.Names[0].IsExported() {
						add(spec.Doc, spec.Comment)
					}
				}
			}
		}
	}
	return all, nil
}

// ofFields adds the comments of the exported fields and methods of a type.
func ofFields(of ast.Expr, add func(...*ast.CommentGroup)) {
	var fields *ast.FieldList
	switch of := of.(type) {
	case *ast.StructType:
		fields = of.Fields
	case *ast.InterfaceType:
		fields = of.Methods
	default:
		return
	}
	for _, f := range fields.List {
		if len(f.Names) == 0 || f.Names[0].IsExported() {
			add(f.Doc, f.Comment)
		}
	}
}

// ofComment returns the paragraphs and list items of a doc comment, without its code blocks and headings.
func ofComment(line int, group *ast.CommentGroup) (all []paragraph) {
	var now paragraph
	finish := func() {
		if now.text != "" {
			all = append(all, now)
		}
		now = paragraph{}
	}
	for i, c := range strings.Split(group.Text(), "\n") {
		trimmed := strings.TrimSpace(c)
		item := strings.HasPrefix(c, " ") && (strings.HasPrefix(trimmed, "- ") || len(trimmed) > 2 && trimmed[0] >= '0' && trimmed[0] <= '9' && trimmed[1] == '.')
		switch {
		case trimmed == "", strings.HasPrefix(c, "# "), strings.HasPrefix(c, "\t"): // a tab begins a line of code
			finish()
			continue
		case item:
			finish()
			trimmed = strings.TrimLeft(trimmed, "-0123456789. ")
		}
		if now.text == "" {
			now.line = line + i
		}
		now.text += trimmed + "\n"
	}
	finish()
	return all
}
