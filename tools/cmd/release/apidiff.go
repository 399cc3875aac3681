package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A breach is an incompatible change of a stable package.
type breach struct {
	text   string
	sudden bool // a name is removed that was not deprecated
}

func (b breach) String() string { return b.text }

// apidiff prints how the exported API of each published module changed since a commit, and returns the incompatible
// changes of stable packages. base "" is the latest version; without one, there is nothing to compare with.
func apidiff(ctx context.Context, r *repository, base string, w io.Writer) (broken []breach, err error) {
	if base == "" {
		if base, err = r.latest(ctx); err != nil {
			return nil, err
		}
	}
	if base == "" {
		_, err := fmt.Fprintln(w, "no version is tagged yet, so there is no API to compare with")
		return nil, err
	}
	commit, err := r.branchCommit(ctx, base)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "pglatch-apidiff-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	old, err := r.clone(ctx, filepath.Join(dir, "old"))
	if err != nil {
		return nil, err
	}
	for _, args := range [][]string{{"fetch", "--quiet", "--no-tags", "origin", commit}, {"checkout", "--quiet", "--detach", commit}} {
		if _, err := old.git(ctx, args...); err != nil {
			return nil, err
		}
	}
	before, err := old.moduleDirs(ctx, commit)
	if err != nil {
		return nil, err
	}
	now, err := r.moduleDirs(ctx, "HEAD")
	if err != nil {
		return nil, err
	}
	for _, module := range slices.Compact(slices.Sorted(slices.Values(append(before, now...)))) {
		if !matches(publishedDirs, module) {
			continue
		}
		difference := "new"
		switch {
		case !slices.Contains(now, module):
			difference = "Incompatible changes:\n- package " + r.modulePath(module) + ": removed, with its module"
		case slices.Contains(before, module):
			if difference, err = r.compare(ctx, old, module, dir); err != nil {
				return nil, err
			}
		}
		breaches, err := r.broken(old, module, difference)
		if err != nil {
			return nil, err
		}
		broken = append(broken, breaches...)
		if _, err := fmt.Fprintf(w, "== %s since %s\n%s\n", r.modulePath(module), base, difference); err != nil {
			return nil, err
		}
	}
	said := "no stable package has an incompatible change"
	if len(broken) > 0 {
		said = "INCOMPATIBLE changes of stable packages (docs/stability.md):\n" + lines(broken)
	}
	_, err = fmt.Fprintf(w, "== since %s\n%s\n", base, said)
	return broken, err
}

// branchCommit returns the commit of a revision. The commit of a release is beside the branch, and its modules require
// each other in the released version. branchCommit returns its parent then, in which modules find each other.
func (r *repository) branchCommit(ctx context.Context, revision string) (string, error) {
	subject, err := r.git(ctx, "log", "-1", "--format=%s", revision+"^{commit}", "--")
	if err != nil {
		return "", fmt.Errorf("%s is no commit: %w", revision, err)
	}
	if subject == releaseSubject(revision) {
		revision += "~1"
	}
	return r.git(ctx, "rev-parse", "--verify", "--quiet", revision+"^{commit}")
}

var (
	inPackage      = regexp.MustCompile(`\./((?:[\w-]+/)*[\w-]+)\.`)
	removedPackage = regexp.MustCompile(`^- package (\S+): removed`)
)

func lines(broken []breach) string {
	var s strings.Builder
	for _, b := range broken {
		s.WriteString(b.text + "\n")
	}
	return strings.TrimSpace(s.String())
}

// broken returns the incompatible changes of stable packages in the output of apidiff for a module.
func (r *repository) broken(old *repository, module, difference string) (all []breach, err error) {
	incompatible := false
	for line := range strings.Lines(difference) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "- ") {
			incompatible = line == "Incompatible changes:"
			continue
		}
		dir := module
		if m := removedPackage.FindStringSubmatch(line); m != nil {
			dir = strings.TrimPrefix(strings.TrimPrefix(m[1], r.module), "/")
		} else if m := inPackage.FindStringSubmatch(line); m != nil {
			dir = path.Join(module, m[1])
		}
		if !incompatible || !slices.Contains(r.stable, dir) {
			continue
		}
		b := breach{text: line + " (" + dir + ")"}
		if name, ok := removed(line); ok {
			names, err := deprecated(old.path(dir))
			if err != nil {
				return nil, err
			}
			owner, _, _ := strings.Cut(name, ".")
			if b.sudden = !names[name] && !names[owner]; b.sudden {
				b.text += ", and was not deprecated"
			}
		}
		all = append(all, b)
	}
	return all, nil
}

// compare returns the changes of one module.
func (r *repository) compare(ctx context.Context, old *repository, module, dir string) (string, error) {
	tool := func(in *repository, args ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "go", append([]string{"tool", "-modfile=" + r.path("tools", "go.mod"), "apidiff", "-m"}, args...)...)
		cmd.Dir, cmd.Env = in.path(module), append(os.Environ(), "GOWORK=off")
		return output(cmd)
	}
	export := filepath.Join(dir, "export")
	if _, err := tool(old, "-w", export, r.modulePath(module)); err != nil {
		return "", err
	}
	out, err := tool(r, export, r.modulePath(module))
	return cmp.Or(strings.TrimSpace(string(out)), "no change"), err
}
