package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// An event is one line of go test -json, see go doc test2json.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

// notRun marks a test that cannot run on this machine. Other tests are skipped by choice.
const notRun = "NOT RUN"

// dataRace begins the race detector's report, which appears in the output of any test that ran at that
// time.
const dataRace = "WARNING: DATA RACE"

// A progress is the current state of go test.
type progress struct {
	out     io.Writer
	results io.Writer // a line for each test
	start   time.Time
	done    int
	running map[string]*suite // by package
}

// A suite is a package whose tests run.
type suite struct {
	start  time.Time
	since  map[string]time.Time        // the tests that run, or wait for their turn
	output map[string]*strings.Builder // of tests that have not passed; "" is the package
}

func (p *progress) print(format string, args ...any) { _, _ = fmt.Fprintf(p.out, format, args...) }

// see processes an event, and reports whether it printed something.
func (p *progress) see(e event, now time.Time) (printed bool) {
	switch s := p.suite(e, now); e.Action {
	case "build-output":
		p.print("%s", e.Output)
		return true
	case "output":
		text := s.output[e.Test]
		if text == nil {
			text = new(strings.Builder)
			s.output[e.Test] = text
		}
		text.WriteString(e.Output)
	case "run", "cont":
		s.since[e.Test] = now
	case "pause":
		delete(s.since, e.Test)
	case "pass", "fail", "skip":
		delete(s.since, e.Test)
		if e.Test == "" {
			p.end(e, s)
			return true
		}
		_, _ = fmt.Fprintf(p.results, "%s\t%s\t%s\t%.2f\n", e.Action, e.Package, e.Test, e.Elapsed)
		text := s.output[e.Test]
		if e.Action == "skip" && text != nil && strings.Contains(text.String(), notRun) {
			p.print("%s", text)
			printed = true
		}
		if e.Action != "fail" && (text == nil || !strings.Contains(text.String(), dataRace)) { // the race can be in another test
			delete(s.output, e.Test)
		}
	}
	return printed
}

func (p *progress) suite(e event, now time.Time) *suite {
	if e.Package == "" {
		return nil
	}
	if p.running == nil {
		p.running = make(map[string]*suite)
	}
	if p.running[e.Package] == nil {
		p.running[e.Package] = &suite{start: now, since: make(map[string]time.Time), output: make(map[string]*strings.Builder)}
	}
	return p.running[e.Package]
}

// end prints the end of a package: one line. For a failed package it also prints all output except that
// of the tests that passed.
func (p *progress) end(e event, s *suite) {
	delete(p.running, e.Package)
	p.done++
	switch e.Action {
	case "fail":
		for _, test := range slices.Sorted(maps.Keys(s.output)) {
			if test != "" {
				p.print("%s", s.output[test])
			}
		}
		if s.output[""] != nil {
			p.print("%s", s.output[""])
		}
		p.print("FAIL  %s  %.1fs\n", e.Package, e.Elapsed)
	case "skip":
		p.print("  -   %s  no tests\n", e.Package)
	default:
		p.print("ok    %s  %.1fs\n", e.Package, e.Elapsed)
	}
}

// tell prints which tests run.
func (p *progress) tell(now time.Time) {
	p.print("...   after %.0fs: %d packages done", now.Sub(p.start).Seconds(), p.done)
	if len(p.running) == 0 {
		p.print(", compiling")
	}
	for _, name := range slices.Sorted(maps.Keys(p.running)) {
		s := p.running[name]
		p.print("; %s runs for %.0fs", name, now.Sub(s.start).Seconds())
		if test := s.longest(); test != "" {
			p.print(", %s for %.0fs", test, now.Sub(s.since[test]).Seconds())
		}
	}
	p.print("\n")
}

// longest returns the test that has run for the longest time. It skips tests that only wait for their
// subtests.
func (s *suite) longest() (test string) {
	for name, since := range s.since {
		if (test == "" || since.Before(s.since[test])) && !s.waits(name) {
			test = name
		}
	}
	return test
}

func (s *suite) waits(test string) bool {
	for name := range s.since {
		if strings.HasPrefix(name, test+"/") {
			return true
		}
	}
	return false
}
