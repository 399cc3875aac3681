package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
)

// A repository is a git working tree.
type repository struct {
	dir    string
	module string   // path of the root module; the path of every other module is this and its directory
	stable []string // directories of stable packages
}

func openRepository(ctx context.Context, dir string) (*repository, error) {
	r := &repository{dir: dir, stable: stablePackages}
	top, err := r.git(ctx, "rev-parse", "--show-toplevel")
	if err != nil {
		return nil, err
	}
	r.dir = top
	content, err := os.ReadFile(r.path("go.mod"))
	if err != nil {
		return nil, err
	}
	if r.module = modfile.ModulePath(content); r.module == "" {
		return nil, fmt.Errorf("%s names no module", r.path("go.mod"))
	}
	return r, nil
}

func (r *repository) path(elements ...string) string {
	return filepath.Join(append([]string{r.dir}, elements...)...)
}

// modulePath returns the path of the module in a directory.
func (r *repository) modulePath(dir string) string { return path.Join(r.module, dir) }

// tag returns the tag that the go command looks for. The tag of a module in a directory has a prefix.
func tag(dir, version string) string {
	if dir == "." {
		return version
	}
	return dir + "/" + version
}

// git returns git's output without the trailing newline.
func (r *repository) git(ctx context.Context, args ...string) (string, error) {
	out, err := output(exec.CommandContext(ctx, "git", append([]string{"-C", r.dir}, args...)...))
	return strings.TrimRight(string(out), "\n"), err
}

// quiet is how long a command may run before output reports that it still runs.
const quiet = 10 * time.Second

// output returns a command's output. An error contains that output and stderr. While the command runs, output prints that it does.
func output(cmd *exec.Cmd) ([]byte, error) {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stop := every(quiet, func(d time.Duration) { fmt.Printf("...   for %.0fs: %s\n", d.Seconds(), strings.Join(cmd.Args, " ")) })
	out, err := cmd.Output()
	stop()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, bytes.TrimSpace(append(stderr.Bytes(), out...)))
	}
	return out, nil
}

// every calls tell after each period, with the time since the start, until stop is called.
func every(period time.Duration, tell func(time.Duration)) (stop func()) {
	began, done, ended := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				tell(time.Since(began))
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// moduleDirs returns the directories of all modules of a commit.
func (r *repository) moduleDirs(ctx context.Context, commit string) (dirs []string, err error) {
	files, err := r.git(ctx, "ls-tree", "-r", "--name-only", "--full-tree", commit)
	if err != nil {
		return nil, err
	}
	for file := range strings.Lines(files) {
		if file = strings.TrimSpace(file); path.Base(file) == "go.mod" {
			dirs = append(dirs, path.Dir(file))
		}
	}
	return dirs, nil
}

// clean fails if there are uncommitted changes.
func (r *repository) clean(ctx context.Context) error {
	status, err := r.git(ctx, "status", "--porcelain")
	if err == nil && status != "" {
		err = fmt.Errorf("the tree has changes that are not committed:\n%s", status)
	}
	return err
}

// latest returns the highest version that is tagged, or "".
func (r *repository) latest(ctx context.Context) (string, error) {
	tags, err := r.git(ctx, "tag", "--list")
	return latest(strings.Fields(tags)), err
}

// untagged fails if one of the tags exists.
func (r *repository) untagged(ctx context.Context, tags []string) error {
	for _, tag := range tags {
		switch out, err := r.git(ctx, "tag", "--list", tag); {
		case err != nil:
			return err
		case out != "":
			return fmt.Errorf("there is a tag %s already", tag)
		}
	}
	return nil
}

// clone clones HEAD alone. Commits and tags can be made in the clone.
func (r *repository) clone(ctx context.Context, dir string) (*repository, error) {
	if _, err := r.git(ctx, "clone", "--quiet", "--no-checkout", "--no-tags", r.dir, dir); err != nil {
		return nil, err
	}
	head, err := r.git(ctx, "rev-parse", "HEAD")
	if err != nil {
		return nil, err
	}
	c := &repository{dir: dir, module: r.module}
	settings := [][]string{
		{"fetch", "--quiet", "--no-tags", "origin", head}, // git clone does not fetch the HEAD of a worktree or a detached HEAD
		{"checkout", "--quiet", "--detach", head},
	}
	for key, fallback := range map[string]string{"user.name": "release", "user.email": "release@localhost"} {
		value, err := r.git(ctx, "config", key)
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			return nil, err
		}
		if value == "" {
			value = fallback
		}
		settings = append(settings, []string{"config", key, value})
	}
	for _, args := range settings {
		if _, err := c.git(ctx, args...); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// commit commits all changes and returns the commit.
func (r *repository) commit(ctx context.Context, message string) (string, error) {
	if _, err := r.git(ctx, "add", "--all"); err != nil {
		return "", err
	}
	if _, err := r.git(ctx, "commit", "--quiet", "--message", message); err != nil {
		return "", err
	}
	return r.git(ctx, "rev-parse", "HEAD")
}
