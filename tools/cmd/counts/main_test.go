package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func TestOnlyLinesWithTokensAreCode(t *testing.T) {
	source := "// Package p is one.\npackage p\n\nvar x = 1 // one\n/* two\nlines */\nvar y = `raw\n\nstring`\n"
	if got := linesOfCode([]byte(source)); got != 5 {
		t.Fatalf("%d lines of code, want 5: package, x, and three of y", got)
	}
}

func TestCommentsOfAScriptAreNoCode(t *testing.T) {
	if got := linesOfScript("# What it proves.\n\npglatch ls\n-- want --\n"); got != 2 {
		t.Fatalf("%d lines of code, want 2", got)
	}
}

func TestAFilesClassFollowsFromItsPath(t *testing.T) {
	c := counts{product: class{name: "product"}, around: class{name: "around"}, tests: class{name: "tests"}}
	for name, want := range map[string]string{
		"advisory/lock.go":                          "product",
		"advisory/lock_test.go":                     "tests",
		"examples/tenants/main.go":                  "around",
		"leader/leadertest/suite.go":                "around",
		"internal/test/pgtest/pgtest.go":            "around",
		"integration/thirdparty/etcdtest/server.go": "around",
		"monitor/internal/web/rules.go":             "product",
		"integration/thirdparty/bench/main_test.go": "tests",
		"cmd/internal/cli/testdata/script/x.txtar":  "tests",
	} {
		if got := c.classOf(name).name; got != want {
			t.Errorf("%s is counted as %s, want %s", name, got, want)
		}
	}
}

// claim matches what a page says of a number: "more than 2,300 tests".
var claim = regexp.MustCompile(`more than ([0-9,]+) ([a-z ]+)`)

// Small changes leave a claim of a page true: it has to be below what is counted, and by no more than 15 % or ten.
func wrongClaims(page string, counted map[string]int) (wrong []string, claims int) {
	for _, match := range claim.FindAllStringSubmatch(page, -1) {
		n, _ := strconv.Atoi(strings.ReplaceAll(match[1], ",", ""))
		name := ""
		for known := range counted {
			if strings.HasPrefix(match[2], known) && len(known) > len(name) {
				name = known
			}
		}
		if got := counted[name]; name == "" || got <= n || got > n+max(n*15/100, 10) {
			wrong = append(wrong, match[0]+": "+strconv.Itoa(got)+" are counted")
		}
		claims++
	}
	return wrong, claims
}

func TestThePageOnTestsHasTheFiguresThatAreCounted(t *testing.T) {
	const root = "../../.."
	c, err := count(root)
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]int{"lines of code for tests": c.tests.code, "lines of code": c.product.code}
	for _, p := range c.proofs.list() {
		counted[p.name] = p.n
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "explanation", "how-it-is-tested.md"))
	if err != nil {
		t.Fatal(err)
	}
	wrong, claims := wrongClaims(string(page), counted)
	for _, w := range wrong {
		t.Error(w)
	}
	if claims < 12 {
		t.Errorf("%d figures on the page", claims)
	}
}

func TestAFigureThatIsNotTrueIsFound(t *testing.T) {
	counted := map[string]int{"tests": 2351, "test scripts": 35, "models": 4}
	for page, want := range map[string]int{
		"more than 2,300 tests, more than 30 test scripts": 0,
		"more than 3 models.":                              0,
		"more than 2,351 tests":                            1,
		"more than 2,000 tests":                            1,
		"more than 20 test scripts":                        1,
		"more than 20 hats":                                1,
	} {
		if wrong, _ := wrongClaims(page, counted); len(wrong) != want {
			t.Errorf("%s: %q", page, wrong)
		}
	}
}

func TestTestsAndWhatTheyFindAreCounted(t *testing.T) {
	p := proofs{}
	err := p.addTests("x_test.go", []byte(`package x

var mutants = []string{"a", "b", "c"}

func TestMain() {}
func TestA()    {}

// The control.
func TestB() {}

func TestEachMutantIsFound() {}
func TestTheSuiteFindsWhatIsBroken() { run(map[string]int{"a": 1, "b": 2}) }
func ExampleA()  {}
func FuzzA()     {}
func (t) TestC() {}
`))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"tests": 4, "controls": 1, "examples": 1, "fuzz targets": 1, "faulty variants": 3 + 3} {
		if p[name] != want {
			t.Errorf("%d %s, want %d", p[name], name, want)
		}
	}
}
