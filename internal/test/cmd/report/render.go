package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/test/tally"
)

// A run is everything that a report tells.
type run struct {
	facts   [][2]string // of the machine and the versions
	lines   []tally.Line
	results []result
}

// A result is a line of gotest.
type result struct {
	outcome, pkg, test string
	seconds            float64
}

// module begins the import paths of packages.
const module = "github.com/pglatch/pglatch/"

// A subject is one test, and what it counted.
type subject struct {
	name     string
	counts   map[string]int
	faults   []tally.Fault
	controls []string
}

// subjects returns the tests that counted something, in the order of their names.
func (r run) subjects() []*subject {
	all := map[string]*subject{}
	for _, l := range r.lines {
		name := strings.TrimPrefix(l.Package, module) + "." + l.Test
		s := all[name]
		if s == nil {
			s = &subject{name: name, counts: map[string]int{}}
			all[name] = s
		}
		switch {
		case l.Count != "":
			s.counts[l.Count] += l.N
		case l.Fault != nil:
			s.faults = append(s.faults, *l.Fault)
		case l.Control != "":
			s.controls = append(s.controls, l.Control)
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *subject) int { return cmp.Compare(a.name, b.name) })
}

// outcome returns the result and the time of a test, or of the test that it is a part of.
func (r run) outcome(name string) string {
	for _, res := range r.results {
		if strings.TrimPrefix(res.pkg, module)+"."+res.test == name {
			return fmt.Sprintf("%s, %.0f s", map[string]string{"pass": "passed", "fail": "FAILED", "skip": "skipped"}[res.outcome], res.seconds)
		}
	}
	return "no result"
}

// failures returns the tests that failed.
func (r run) failures() (names []string) {
	for _, res := range r.results {
		if res.outcome == "fail" {
			names = append(names, strings.TrimPrefix(res.pkg, module)+"."+res.test)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// render writes the report as Markdown.
func (r run) render(w io.Writer) error {
	var b strings.Builder
	b.WriteString("# Report of a run of the histories\n\n")
	passed := 0
	for _, res := range r.results {
		if res.outcome == "pass" {
			passed++
		}
	}
	if failures := r.failures(); len(failures) > 0 {
		fmt.Fprintf(&b, "**%d tests failed**, and %d passed:\n\n", len(failures), passed)
		for _, f := range failures {
			fmt.Fprintf(&b, "- %s\n", f)
		}
	} else {
		fmt.Fprintf(&b, "All %d tests passed.\n", passed)
	}
	b.WriteString("\n## Circumstances\n\n| | |\n|---|---|\n")
	for _, f := range r.facts {
		fmt.Fprintf(&b, "| %s | %s |\n", f[0], cell(f[1]))
	}
	subjects := r.subjects()
	b.WriteString("\n## Operations\n\n| test | result | counted |\n|---|---|---|\n")
	for _, s := range subjects {
		if len(s.counts) > 0 {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", s.name, r.outcome(s.name), strings.Join(counted(s.counts), ", "))
		}
	}
	b.WriteString("\n## Faults\n\nThe windows are the longest that followed a fault of the kind. *Again* is until somebody held, led or owned again. " +
		"*Overlap* is for how long an earlier holder did not know of its loss, or went on, beside the next one. Guards and fences refuse its writes. An empty cell was not measured.\n\n" +
		"| test | fault | times | again after | bound | overlap |\n|---|---|--:|--:|--:|--:|\n")
	total := map[string]int{}
	for _, s := range subjects {
		for _, f := range s.faults {
			total[f.Name] += f.Times
			fmt.Fprintf(&b, "| %s | %s | %d | %s | %s | %s |\n", s.name, f.Name, f.Times, window(f.Freed), window(f.Bound), overlap(f.Overlap))
		}
	}
	b.WriteString("\nAll faults by kind:\n\n")
	for _, text := range counted(total) {
		b.WriteString("- " + text + "\n")
	}
	b.WriteString("\n## Controls\n\nEach control switches a protection off. It fails if nothing goes wrong.\n\n| test | result | found |\n|---|---|---|\n")
	for _, s := range subjects {
		for _, c := range s.controls {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", s.name, r.outcome(s.name), cell(c))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// counted returns numbers with their names, in the order of the names.
func counted(counts map[string]int) (texts []string) {
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		texts = append(texts, thousands(counts[name])+" "+name)
	}
	return texts
}

func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// window returns a duration for people; "" = not measured.
func window(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.Round(max(10*time.Microsecond, d.Round(time.Second)/1000)).String()
}

// overlap returns a window that can be 0.
func overlap(d *time.Duration) string {
	switch {
	case d == nil:
		return ""
	case *d == 0:
		return "none"
	}
	return window(*d)
}

// cell returns a text that ends no cell.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text)
}
