package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// liveMacro is defined in checks of LTL formulas.
const liveMacro = "LIVE"

// A job is one run of SPIN.
type job struct {
	model   model
	check   check
	mutant  string // "" = none: the check must find no error
	defines []string

	large    bool // the states take so much memory that they are compressed, which takes time
	bitstate bool // the search keeps bits instead of states, and says what it covers

	result result
	took   time.Duration
	story  []string // of the counter-example
	err    error
}

// A result is what the verifier printed.
type result struct {
	states, depth string
	errors        bool
	incomplete    string // why the search was not exhaustive; "" = it was
	hashFactor    string // of a bitstate search; above 100 it has seen nearly all states
}

func (j *job) name() string {
	if j.mutant == "" {
		return j.model.name + ", " + j.check.name
	}
	return j.model.name + " with " + j.mutant + ", found by " + j.check.name
}

// outcome is the last column of the report.
func (j *job) outcome() string {
	switch {
	case j.err != nil:
		return "FAILED"
	case j.mutant != "":
		return "counter-example, as it must be"
	case j.result.hashFactor != "":
		return "bitstate, hash factor " + j.result.hashFactor + ", 0 errors"
	}
	return "full state space, 0 errors"
}

// run compiles and runs the verifier in dir, and judges what it finds.
func (j *job) run(ctx context.Context, dir string) {
	begin := time.Now()
	out, err := j.verify(ctx, dir)
	j.took = time.Since(begin)
	if err != nil {
		j.err = err
		return
	}
	j.result, err = parseResult(out)
	switch {
	case err != nil:
		j.err = fmt.Errorf("%w:\n%s", err, out)
		return
	case j.result.errors:
		j.story, j.err = j.tell(ctx, dir)
	}
	switch {
	case j.err != nil:
	case j.mutant == "" && j.result.errors:
		j.err = errors.New("the check found an error, see its story")
	case j.mutant == "" && j.bitstate && j.result.hashFactor != "":
	case j.mutant == "" && j.result.incomplete != "":
		j.err = errors.New(j.result.incomplete)
	case j.mutant != "" && !j.result.errors:
		j.err = errors.New("no counter-example: the check does not need this protection")
	}
}

// verify returns the output of the verifier. A mutant of a safety check is searched breadth first: its counter-example is a
// shortest one.
func (j *job) verify(ctx context.Context, dir string) (string, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, j.file()), []byte(j.model.source), 0o600); err != nil {
		return "", err
	}
	optimize := "-O2"
	if j.mutant != "" {
		optimize = "-O0" // its search is so short that optimizing costs more than it saves
	}
	compile := []string{"-w", optimize, "-DNOBOUNDCHECK", "-DMEMLIM=12000", "-o", "pan", "pan.c"}
	args := []string{"-m5000000"}
	switch {
	case j.bitstate:
		compile = append(compile, "-DBITSTATE")
		args = append(args, "-w34")
	case j.large:
		compile = append(compile, "-DCOLLAPSE")
	}
	switch {
	case j.check.live:
		j.defines = append(j.defines, "-D"+liveMacro)
		compile = append(compile, "-DNFAIR=4")
		args = append(args, "-a", "-f", "-N", j.check.name)
	case j.mutant != "":
		compile = append(compile, "-DSAFETY", "-DNOCLAIM", "-DBFS")
		args = nil
	default:
		compile = append(compile, "-DSAFETY", "-DNOCLAIM")
	}
	if out, err := command(ctx, dir, "spin", append(append([]string{"-a"}, j.defines...), j.file())...); err != nil || strings.Contains(out, "Error") {
		return "", fmt.Errorf("spin: %w\n%s", err, out)
	}
	if out, err := command(ctx, dir, "gcc", compile...); err != nil {
		return "", fmt.Errorf("gcc: %w\n%s", err, out)
	}
	return command(ctx, dir, "./pan", args...)
}

func (j *job) file() string { return j.model.name + ".pml" }

// tell replays the counter-example, and returns what the model printed meanwhile.
func (j *job) tell(ctx context.Context, dir string) ([]string, error) {
	out, err := command(ctx, dir, "spin", append(append([]string{"-t", "-T"}, j.defines...), j.file())...)
	if err != nil {
		return nil, fmt.Errorf("replay: %w\n%s", err, out)
	}
	return parseStory(out), nil
}

func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	return string(out), err
}

var (
	statesLine = regexp.MustCompile(`(?m)^ *([0-9.e+]+) states, stored`)
	depthLine  = regexp.MustCompile(`depth reached (\d+), errors: (\d+)`)
	factorLine = regexp.MustCompile(`hash factor: ([0-9.]+)`)
)

func parseResult(out string) (result, error) {
	states, depth := statesLine.FindStringSubmatch(out), depthLine.FindStringSubmatch(out)
	if states == nil || depth == nil {
		return result{}, errors.New("the verifier did not finish")
	}
	r := result{states: states[1], depth: depth[1], errors: depth[2] != "0"}
	if factor := factorLine.FindStringSubmatch(out); factor != nil && strings.Contains(out, "Bit statespace search") {
		r.hashFactor = factor[1]
	}
	for _, sign := range []string{"max search depth too small", "Search not completed", "out of memory", "Bit statespace", "hash compaction"} {
		if strings.Contains(out, sign) {
			r.incomplete = "the search is not exhaustive: " + sign
		}
	}
	switch {
	case strings.Contains(out, "max search depth too small"), strings.Contains(out, "Search not completed"), strings.Contains(out, "out of memory"):
		r.hashFactor = ""
	case !strings.Contains(out, "Full statespace search"):
		r.incomplete = cmp.Or(r.incomplete, "no full state space search")
	}
	return r, nil
}

var storyLine = regexp.MustCompile(`^ *([a-z][a-z ]*(?: \d+)?: .*)$`)

// parseStory returns the lines that the model printed. Each begins with who does it, as "client 1: ". Repeated lines become
// one.
func parseStory(out string) (story []string) {
	last, times := "", 0
	flush := func() {
		if times > 1 {
			story[len(story)-1] += fmt.Sprintf(" (%d times)", times)
		}
	}
	for line := range strings.Lines(out) {
		line = strings.TrimRight(line, "\n")
		if strings.Contains(line, "START OF CYCLE") {
			flush()
			last, times = "", 0
			story = append(story, "from here on, for ever:")
			continue
		}
		found := storyLine.FindStringSubmatch(line)
		switch {
		case found == nil || strings.HasPrefix(line, "spin:") || strings.HasPrefix(line, "ltl ") || strings.HasPrefix(line, "pan:"):
		case found[1] == last:
			times++
		default:
			flush()
			last, times = found[1], 1
			story = append(story, last)
		}
	}
	flush()
	return story
}
