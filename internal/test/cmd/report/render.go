package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/legible"
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
			s.add(*l.Fault)
		case l.Control != "":
			s.controls = append(s.controls, l.Control)
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b *subject) int { return cmp.Compare(a.name, b.name) })
}

// add adds faults of one round: of each kind, the longest windows stay.
func (s *subject) add(f tally.Fault) {
	i := slices.IndexFunc(s.faults, func(before tally.Fault) bool { return before.Name == f.Name })
	if i < 0 {
		s.faults = append(s.faults, f)
		return
	}
	before := &s.faults[i]
	before.Times += f.Times
	before.Freed, before.Bound = max(before.Freed, f.Freed), max(before.Bound, f.Bound)
	if before.Overlap == nil || f.Overlap != nil && *f.Overlap > *before.Overlap {
		before.Overlap = f.Overlap
	}
}

// outcome returns the results of a test in all rounds, and its time in all.
func (r run) outcome(name string) string {
	times, seconds := map[string]int{}, 0.0
	for _, res := range r.results {
		if strings.TrimPrefix(res.pkg, module)+"."+res.test == name {
			times[res.outcome]++
			seconds += res.seconds
		}
	}
	var texts []string
	for _, outcome := range [][2]string{{"fail", "FAILED"}, {"pass", "passed"}, {"skip", "skipped"}} {
		switch n := times[outcome[0]]; n {
		case 0:
		case 1:
			texts = append(texts, outcome[1])
		default:
			texts = append(texts, fmt.Sprintf("%s %d times", outcome[1], n))
		}
	}
	if texts == nil {
		return "no result"
	}
	return fmt.Sprintf("%s, %.0f s", strings.Join(texts, ", "), seconds)
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
	b.WriteString("# The last long run\n\nFor people who ask what the histories measured: a report of their last long run. " +
		"[How pglatch is tested](../explanation/how-it-is-tested.md) says what a history is. This page is the output of `make report`; no number on it was written by hand.\n\n")
	r.renderResult(&b)
	b.WriteString("\n## Circumstances\n\n| | |\n|---|---|\n")
	for _, f := range r.facts {
		fmt.Fprintf(&b, "| %s | %s |\n", f[0], cell(f[1]))
	}
	subjects := r.subjects()
	b.WriteString("\nA load above the number of processors means that other work shared the machine.\n")
	b.WriteString("\n## Operations\n\nThe seconds are those of all rounds.\n\n| test | result | counted |\n|---|---|---|\n")
	for _, s := range subjects {
		if len(s.counts) > 0 {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", s.title(), r.outcome(s.name), strings.Join(counted(s.counts), ", "))
		}
	}
	renderFaults(&b, subjects)
	b.WriteString("\n## Controls\n\nEach control switches a protection off. It fails if nothing goes wrong. What the first round found is an example.\n\n| test | result | found |\n|---|---|---|\n")
	for _, s := range subjects {
		if len(s.controls) > 0 {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", s.title(), r.outcome(s.name), cell(s.controls[0]))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// title is the name of a test, as other pages write it.
func (s *subject) title() string { return "`" + s.name + "`" }

// renderResult writes which tests failed.
func (r run) renderResult(b *strings.Builder) {
	passed := 0
	for _, res := range r.results {
		if res.outcome == "pass" {
			passed++
		}
	}
	failures := r.failures()
	if len(failures) == 0 {
		fmt.Fprintf(b, "No test failed. There are %s passes, counted in each round.\n", legible.Number(passed))
		return
	}
	fmt.Fprintf(b, "**Tests failed**, beside %s passes:\n\n", legible.Number(passed))
	for _, f := range failures {
		fmt.Fprintf(b, "- `%s`: %s\n", f, r.outcome(f))
	}
}

// renderFaults writes the faults of each test, and all by kind.
func renderFaults(b *strings.Builder, subjects []*subject) {
	b.WriteString("\n## Faults\n\nThe windows are the longest that followed a fault of the kind. *Again* is the time until somebody held, led or owned again. " +
		"*Overlap* is how long an earlier holder did not know of its loss, or went on, beside the next one. Guards and fences refuse its writes. An empty cell was not measured.\n\n" +
		"| test | fault | times | again after | bound | overlap |\n|---|---|--:|--:|--:|--:|\n")
	total := map[string]int{}
	for _, s := range subjects {
		for _, f := range s.faults {
			total[f.Name] += f.Times
			fmt.Fprintf(b, "| %s | %s | %d | %s | %s | %s |\n", s.title(), f.Name, f.Times, window(f.Freed), window(f.Bound), overlap(f.Overlap))
		}
	}
	b.WriteString("\nAll faults by kind:\n\n| fault | times |\n|---|--:|\n")
	for _, name := range slices.Sorted(maps.Keys(total)) {
		fmt.Fprintf(b, "| %s | %s |\n", name, legible.Number(total[name]))
	}
}

// counted returns numbers with their names, in the order of the names.
func counted(counts map[string]int) (texts []string) {
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		texts = append(texts, legible.Number(counts[name])+" "+name)
	}
	return texts
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
