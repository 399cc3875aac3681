package main

import "testing"

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
		"monitor/internal/incident/rules.go":        "product",
		"integration/thirdparty/bench/main_test.go": "tests",
		"cmd/internal/cli/testdata/script/x.txtar":  "tests",
	} {
		if got := c.classOf(name).name; got != want {
			t.Errorf("%s is counted as %s, want %s", name, got, want)
		}
	}
}
