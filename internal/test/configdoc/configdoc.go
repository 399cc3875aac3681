// Package configdoc reads the doc comments of configuration structs: what a field means, and what its zero value stands
// for. Tests compare the comments with the code, and the reference pages are made from them.
package configdoc

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/gosource"
)

// A Field is one field of a configuration, or several that share a comment.
type Field struct {
	Names   []string
	Type    string
	Default string // what the zero value stands for, without the comment's full stop; "" = the comment does not say
	Limits  string // what other values may be or mean; "" = the comment does not say
	Meaning string // the first sentences of the comment
}

// Required is the Default of a field that has to be set.
const Required = "required"

// sentences is how many sentences of a comment are its Meaning.
const sentences = 3

var (
	sentenceEnd = regexp.MustCompile(`[.!?]\s+("?[A-Z0-9]|""|nil\b|false\b|true\b|negative\b)`)
	zeroValue   = regexp.MustCompile(`^(?:0|nil|""|false|Zero|Default|Default of zero)(?: =|:) (.*)$`)
)

// Fields returns the exported fields of a struct of a package, in their order.
func Fields(tb testing.TB, dir, name string) (fields []Field) {
	tb.Helper()
	p := parse(tb, dir)
	structure, ok := p.types[name].(*ast.StructType)
	require.True(tb, ok, "%s has no struct %s", dir, name)
	for _, f := range structure.Fields.List {
		names := exported(f.Names)
		if len(names) == 0 {
			continue
		}
		if f.Doc == nil { // it shares the comment of the field above
			require.NotEmpty(tb, fields, "%s.%s has no comment", name, names[0])
			last := &fields[len(fields)-1]
			last.Names = append(last.Names, names...)
			if typ := p.Text(tb, f.Type); typ != last.Type {
				last.Type += ", " + typ
			}
			continue
		}
		field := Field{Names: names, Type: p.Text(tb, f.Type)}
		field.read(f.Doc.Text(), p.constants)
		fields = append(fields, field)
	}
	return fields
}

func exported(idents []*ast.Ident) (names []string) {
	for _, ident := range idents {
		if ident.IsExported() {
			names = append(names, ident.Name)
		}
	}
	return names
}

// read takes a comment apart.
func (f *Field) read(comment string, constants map[string]string) {
	var meaning []string
	for i, paragraph := range strings.Split(comment, "\n\n") {
		if i > 0 && strings.HasSuffix(f.Meaning, ":") { // it is a list
			f.Meaning += " " + strings.ReplaceAll(strings.Join(strings.Fields(paragraph), " ")[2:], " - ", "; ")
		}
		for _, sentence := range split(paragraph) {
			if rest, ok := strings.CutPrefix(sentence, "Required"); ok {
				f.Default, f.Limits = Required, strings.Trim(rest, ",. ")
				continue
			}
			if rest, ok := strings.CutPrefix(sentence, "true = "); ok {
				meaning = append(meaning, "True: "+rest)
				continue
			}
			if m := zeroValue.FindStringSubmatch(sentence); m != nil && f.Default == "" {
				text := named(strings.TrimSuffix(m[1], "."), constants)
				f.Default, f.Limits, _ = strings.Cut(strings.Replace(text, ", negative = ", "; negative = ", 1), "; ")
				if f.Type == "bool" {
					meaning = append(meaning, "False: "+text+".")
					f.Default, f.Limits = "", ""
				}
				continue
			}
			if i == 0 && !strings.HasPrefix(sentence, "See ") && len(meaning) < sentences {
				meaning = append(meaning, sentence)
			}
		}
		if i == 0 {
			f.Meaning, meaning = strings.Join(meaning, " "), nil
		}
	}
	f.Meaning = strings.TrimSuffix(strings.TrimSpace(strings.Join(append([]string{f.Meaning}, meaning...), " ")), ".")
	for _, cut := range []string{f.Names[0] + " is ", f.Names[0] + " are ", f.Names[0] + ": ", f.Names[0] + ", ", strings.Join(f.Names, " and ") + " ", f.Names[0] + " "} {
		if rest, ok := strings.CutPrefix(f.Meaning, cut); ok {
			f.Meaning = rest
			break
		}
	}
}

// split returns the sentences of a paragraph.
func split(paragraph string) (all []string) {
	text := strings.Join(strings.Fields(paragraph), " ")
	for {
		at := sentenceEnd.FindStringIndex(text)
		if at == nil {
			return append(all, text)
		}
		all = append(all, text[:at[0]+1])
		text = strings.TrimSpace(text[at[0]+1:])
	}
}

// named replaces constants by their values.
func named(text string, constants map[string]string) string {
	return regexp.MustCompile(`\b[A-Z]\w+\b`).ReplaceAllStringFunc(text, func(word string) string {
		if value, ok := constants[word]; ok && !strings.Contains(value, "(") && value != "iota" {
			return value
		}
		return word
	})
}

// A code is what the files of a package say.
type code struct {
	gosource.Package

	types     map[string]ast.Expr
	constants map[string]string // as people read them
}

func parse(tb testing.TB, dir string) code {
	tb.Helper()
	p := code{gosource.Parse(tb, dir), map[string]ast.Expr{}, map[string]string{}}
	for _, file := range p.Files {
		for _, decl := range file.Decls {
			if group, ok := decl.(*ast.GenDecl); ok {
				p.add(tb, group)
			}
		}
	}
	return p
}

func (p code) add(tb testing.TB, group *ast.GenDecl) {
	tb.Helper()
	for _, spec := range group.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			p.types[spec.Name.Name] = spec.Type
		case *ast.ValueSpec:
			if group.Tok == token.CONST && len(spec.Values) == len(spec.Names) {
				for i, name := range spec.Names {
					p.constants[name.Name] = readable(p.Text(tb, spec.Values[i]))
				}
			}
		}
	}
}

var (
	units   = map[string]string{"time.Millisecond": "ms", "time.Second": "s", "time.Minute": "min", "time.Hour": "h"}
	times   = regexp.MustCompile(`^([\d_]+) \* (time\.\w+)$`)
	shifted = regexp.MustCompile(`^(\d+) << (\d0)$`)
)

// readable returns an expression as people write it.
func readable(expression string) string {
	if unit, ok := units[expression]; ok {
		return "1 " + unit
	}
	if m := times.FindStringSubmatch(expression); m != nil {
		return m[1] + " " + units[m[2]]
	}
	if m := shifted.FindStringSubmatch(expression); m != nil {
		return m[1] + " " + map[string]string{"10": "KiB", "20": "MiB", "30": "GiB"}[m[2]]
	}
	if text := strings.ReplaceAll(expression, "_", ","); regexp.MustCompile(`^[\d,]+$`).MatchString(text) {
		return text
	}
	return strings.ReplaceAll(expression, `"`, "`")
}
