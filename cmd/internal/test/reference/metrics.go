package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ofMetrics lists the metrics of a package whose names begin with one of the prefixes: their names and labels are those
// of its golden file, their kind and help those of the source.
func ofMetrics(tb testing.TB, dir string, prefixes ...string) string {
	tb.Helper()
	helps := metricHelps(tb, filepath.Join(root, dir))
	golden, err := os.ReadFile(filepath.Join(root, dir, "testdata/frozen/metrics.txt"))
	require.NoError(tb, err)
	var rows [][]string
	for series := range strings.FieldsSeq(string(golden)) {
		name, labels, _ := strings.Cut(series, "{")
		labels = strings.TrimSuffix(labels, "}")
		for _, prefix := range prefixes {
			if !strings.HasPrefix(name, prefix) {
				continue
			}
			help, ok := helps[name]
			if operation, is := strings.CutPrefix(name, "lock_"); is && !ok { // "lock_"+operation+"_total"
				help = metric{"counter", "Requests to " + strings.TrimSuffix(operation, "_total") + "."}
			}
			if part, is := strings.CutPrefix(name, "pglatch_shard_"); is && !ok { // shardCounter
				help = helps[part]
			}
			require.NotEmpty(tb, help.text, "the source has no help of %s", name)
			require.NotEmpty(tb, help.kind, "the source has no kind of %s", name)
			rows = append(rows, []string{code(name), codes(strings.FieldsFunc(labels, func(r rune) bool { return r == ',' })), help.kind, prose(help.text)})
			break
		}
	}
	return table([]string{"metric", "labels", "kind", "meaning"}, rows)
}

type metric struct{ kind, text string }

var (
	metricName = regexp.MustCompile(`^"((pglatch|leader|lock|locks)_[a-z_]+|[a-z_]+_total)"$`)
	metricKind = regexp.MustCompile(`(?i)(counter|gauge|histogram|total)`)
)

// metricHelps finds the calls and options that name a metric, and the string that follows.
func metricHelps(tb testing.TB, dir string) map[string]metric {
	tb.Helper()
	helps := map[string]metric{}
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(tb, err)
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		require.NoError(tb, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				addHelp(helps, n.Fun, n.Args)
			case *ast.CompositeLit:
				var values []ast.Expr
				for _, element := range n.Elts {
					if pair, ok := element.(*ast.KeyValueExpr); ok {
						values = append(values, pair.Value)
					}
				}
				addHelp(helps, n.Type, values)
			}
			return true
		})
	}
	return helps
}

func addHelp(helps map[string]metric, kind ast.Expr, values []ast.Expr) {
	if len(values) < 2 {
		return
	}
	name, ok := values[0].(*ast.BasicLit)
	help, also := values[1].(*ast.BasicLit)
	if !ok || !also || !metricName.MatchString(name.Value) || help.Kind != token.STRING {
		return
	}
	var function string
	switch kind := kind.(type) {
	case *ast.Ident:
		function = kind.Name
	case *ast.SelectorExpr:
		function = kind.Sel.Name
	}
	of := strings.ToLower(metricKind.FindString(function))
	if of == "total" {
		of = "counter"
	}
	if of == "" && strings.HasSuffix(name.Value, `_total"`) { // prometheus.NewDesc
		of = "counter"
	}
	helps[strings.Trim(name.Value, `"`)] = metric{of, unquote(help.Value)}
}

func unquote(literal string) string {
	text, err := strconv.Unquote(literal)
	if err != nil {
		return literal
	}
	return text
}

// An alert is a rule of the file for Prometheus.
var alert = regexp.MustCompile(`(?m)^      - alert: (\w+)\n((?:        .*\n)+)`)

// ofAlerts lists the alerts: how long they wait, and what they say.
func ofAlerts(tb testing.TB) string {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(root, "observe/prometheus/rules.yml"))
	require.NoError(tb, err)
	var rows [][]string
	for _, m := range alert.FindAllStringSubmatch(string(text), -1) {
		rows = append(rows, []string{code(m[1]), rule(m[2], "labels"), rule(m[2], "for"), code(strings.ReplaceAll(rule(m[2], "expr"), "|", `\|`)), prose(rule(m[2], "description"))})
	}
	require.NotEmpty(tb, rows)
	return table([]string{"alert", "severity", "for", "condition", "what it means, and what to do"}, rows)
}

// rule is one entry of an alert.
func rule(text, name string) string {
	m := regexp.MustCompile(`(?m)^ +` + name + `: (.*)$`).FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	value := strings.TrimSuffix(strings.TrimPrefix(m[1], "{severity: "), "}")
	for _, quote := range []string{`'`, `"`} {
		if strings.HasPrefix(value, quote) && strings.HasSuffix(value, quote) {
			return strings.ReplaceAll(value[1:len(value)-1], quote+quote, quote)
		}
	}
	return value
}
