package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// apidiff prints how the exported API of each published module changed since a commit.
func apidiff(ctx context.Context, r *repository, base string, w io.Writer) error {
	commit, err := r.git(ctx, "rev-parse", "--verify", "--quiet", base+"^{commit}")
	if err != nil {
		return fmt.Errorf("%s is no commit: %w", base, err)
	}
	dir, err := os.MkdirTemp("", "pglatch-apidiff-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	old, err := r.clone(ctx, filepath.Join(dir, "old"))
	if err != nil {
		return err
	}
	for _, args := range [][]string{{"fetch", "--quiet", "--no-tags", "origin", commit}, {"checkout", "--quiet", "--detach", commit}} {
		if _, err := old.git(ctx, args...); err != nil {
			return err
		}
	}
	before, err := old.moduleDirs(ctx, commit)
	if err != nil {
		return err
	}
	now, err := r.moduleDirs(ctx, "HEAD")
	if err != nil {
		return err
	}
	published, _, err := sortModules(now)
	if err != nil {
		return err
	}
	for _, module := range published {
		difference := "new"
		if slices.Contains(before, module) {
			if difference, err = r.compare(ctx, old, module, dir); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(w, "== %s since %s\n%s\n", r.modulePath(module), base, difference); err != nil {
			return err
		}
	}
	return nil
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
