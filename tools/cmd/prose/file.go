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
	var found paragraphs
	fenced := false
	for i, line := range strings.Split(string(text), "\n") {
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			fenced = !fenced
			found.end()
			continue
		}
		item := isItem(trimmed) || strings.HasPrefix(trimmed, "* ")
		switch {
		case fenced, strings.HasPrefix(trimmed, "|"), strings.HasPrefix(trimmed, "#"), trimmed == "", strings.HasPrefix(line, "    ") && found.now.text == "" && !item:
			found.end()
		default:
			found.add(i+1, trimmed, item)
		}
	}
	return found.end(), nil
}

// paragraphs collects the paragraphs and list items of a text by its lines.
type paragraphs struct {
	all []paragraph
	now paragraph
}

// add adds a line; item = it begins a list item.
func (p *paragraphs) add(number int, line string, item bool) {
	if item {
		p.end()
		line = strings.TrimLeft(line, "-*0123456789. ")
	}
	if p.now.text == "" {
		p.now.line = number
	}
	p.now.text += line + "\n"
}

// end ends a paragraph, and returns all so far.
func (p *paragraphs) end() []paragraph {
	if p.now.text != "" {
		p.all = append(p.all, p.now)
	}
	p.now = paragraph{}
	return p.all
}

// isItem reports whether a line begins like a list item: "- " or "1.".
func isItem(line string) bool {
	return strings.HasPrefix(line, "- ") || len(line) > 2 && line[0] >= '0' && line[0] <= '9' && line[1] == '.'
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
func ofComment(line int, group *ast.CommentGroup) []paragraph {
	var found paragraphs
	for i, c := range strings.Split(group.Text(), "\n") {
		trimmed := strings.TrimSpace(c)
		if trimmed == "" || strings.HasPrefix(c, "# ") || strings.HasPrefix(c, "\t") { // a tab begins a line of code
			found.end()
		} else {
			found.add(line+i, trimmed, strings.HasPrefix(c, " ") && isItem(trimmed))
		}
	}
	return found.end()
}
