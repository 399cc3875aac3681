package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const root = "../../.."

func TestTheFunctionsThatTheModelsReferToExist(t *testing.T) {
	models, err := readModels(filepath.Join(root, "spec"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range models {
		names := m.references()
		if len(names) < 10 {
			t.Errorf("%s.pml refers to %d functions only", m.name, len(names))
		}
		for _, name := range names {
			if err := missing(root, name); err != nil {
				t.Errorf("%s.pml: %v", m.name, err)
			}
		}
	}
}

func TestAFunctionThatDoesNotExistIsFound(t *testing.T) {
	for name, there := range map[string]bool{
		"internal/pgsession.(*Session).lose":                      true,
		"internal/pgsession.Session.lose":                         false,
		"internal/pgsession.(*Session).gone":                      false,
		"internal/pgsession.Settings":                             true,
		"internal/nothing.Settings":                               false,
		"internal/pgsession":                                      false,
		"lease/postgres/schema/guard.sql pglatch_lease.guard":     true,
		"lease/postgres/schema/guard.sql pglatch_lease.gua":       false,
		"lease/postgres/schema/nothing.sql pglatch_lease.nothing": false,
	} {
		if err := missing(root, name); (err == nil) != there {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestTheTableOfMutantsHasEachSwitchOfTheModels(t *testing.T) {
	models, err := readModels(filepath.Join(root, "spec"))
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(root, "spec", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	mutants, err := parseMutants(string(readme))
	if err != nil {
		t.Fatal(err)
	}
	if err := compare(models, mutants); err != nil {
		t.Error(err)
	}
}

const small = `// One.
//
// check safe: nothing bad
//   small: -DN=1
//   large: -DN=2 -DSLOW
// live fed: something good
//   small: none
//   large: -DN=1

#define OWN 1
#if defined(SLOW) && !defined(NO_A)
#ifdef OWN
#ifdef LIVE
#ifndef NO_B
// code: a.F
`

func TestAMissingMutantIsFound(t *testing.T) {
	m, err := parseModel("m", small)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(m.switches(), " "); got != "NO_A NO_B" {
		t.Errorf("switches: %s", got)
	}
	if m.check("safe").bounds(true) != "-DN=2 -DSLOW" || m.check("fed").bounds(false) != "" || !m.check("fed").live {
		t.Errorf("checks: %+v", m.checks)
	}
	mutants, err := parseMutants("| m | `NO_A` | a | safe |\n| m | `NO_B` | b | safe |\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := compare([]model{m}, mutants); err != nil {
		t.Error(err)
	}
	for want, wrong := range map[string][]mutant{
		"does not list": mutants[:1],
		"has no switch": append(mutants[:2:2], mutant{"NO_C", "m", "safe"}),
		"has no check":  {{"NO_A", "m", "none"}, mutants[1]},
		"small bounds":  {{"NO_A", "m", "fed"}, mutants[1]},
	} {
		if err := compare([]model{m}, wrong); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestASearchThatIsNotExhaustiveIsRefused(t *testing.T) {
	const full = "Full statespace search for:\nState-vector 140 byte, depth reached 92, errors: 0\n   776557 states, stored\n"
	r, err := parseResult(full)
	if err != nil || r != (result{states: "776557", depth: "92"}) {
		t.Errorf("%+v, %v", r, err)
	}
	for _, out := range []string{"error: max search depth too small\n" + full, "Warning: Search not completed\n" + full, strings.Replace(full, "Full", "Bit", 1)} {
		if r, err := parseResult(out); err != nil || r.incomplete == "" {
			t.Errorf("%q: %+v, %v", out, r, err)
		}
	}
	bits := strings.Replace(full, "Full", "Bit", 1) + "hash factor: 120.5 (best if > 100.)\n"
	if r, err := parseResult(bits); err != nil || r.hashFactor != "120.5" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := parseResult("pan: killed"); err == nil {
		t.Error("no error")
	}
}

func TestAStoryHasOnlyTheLinesOfTheModel(t *testing.T) {
	got := parseStory("ltl a: b\nclient 1: tries\n  <<<<<START OF CYCLE>>>>>\nclock: a tick\nclock: a tick\nspin: trail ends\n\t\towner = 1\n")
	if want := "client 1: tries|from here on, for ever:|clock: a tick (2 times)"; strings.Join(got, "|") != want {
		t.Errorf("%q", got)
	}
}
