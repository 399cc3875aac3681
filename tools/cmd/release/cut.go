package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// trialVersion is a version that no release will have.
const trialVersion = "v0.0.0-trial"

// A candidate is a release that exists only in a clone.
type candidate struct {
	*repository
	version   string
	published []string // directories
	tags      []string // of commit
	changelog string   // the commit whose CHANGELOG has the version
	commit    string   // a child of changelog, whose modules require each other in this version
}

// cut makes a release if programs outside can use it, and otherwise changes nothing. The branch
// gets a commit for the CHANGELOG. The tagged commit, in which published modules have no replace
// directives, is not on the branch. cut pushes nothing.
func cut(ctx context.Context, r *repository, version string, now time.Time) error {
	if err := checkVersion(version); err != nil {
		return err
	}
	if err := r.clean(ctx); err != nil {
		return err
	}
	before, err := r.latest(ctx)
	if err != nil {
		return err
	}
	return r.inClone(ctx, func(clone *repository, dir string) error {
		c, err := prepare(ctx, clone, version, now)
		if err != nil {
			return err
		}
		if err := r.untagged(ctx, c.tags); err != nil {
			return err
		}
		if err := c.tryOut(ctx, dir); err != nil {
			return err
		}
		broken, err := apidiff(ctx, r, before, os.Stdout)
		if err != nil {
			return err
		}
		section, err := c.section()
		if err != nil {
			return err
		}
		if err := checkStable(before, version, section, broken); err != nil {
			return err
		}
		return r.take(ctx, c)
	})
}

// trial does the same as cut, with trialVersion, and keeps nothing.
func trial(ctx context.Context, r *repository, now time.Time) error {
	if err := r.clean(ctx); err != nil {
		fmt.Println("NOTE: this tries HEAD;", err)
	}
	return r.inClone(ctx, func(clone *repository, dir string) error {
		c, err := prepare(ctx, clone, trialVersion, now)
		if err != nil {
			return err
		}
		return c.tryOut(ctx, dir)
	})
}

// inClone calls f with a clone and a directory, and then removes both.
func (r *repository) inClone(ctx context.Context, f func(clone *repository, dir string) error) error {
	dir, err := os.MkdirTemp("", "pglatch-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	clone, err := r.clone(ctx, filepath.Join(dir, "clone"))
	if err != nil {
		return err
	}
	return f(clone, dir)
}

// releaseSubject is the subject of the commit that a release's tags are on.
func releaseSubject(version string) string { return "release: " + version }

// prepare creates the commits and tags.
func prepare(ctx context.Context, clone *repository, version string, now time.Time) (*candidate, error) {
	c := &candidate{repository: clone, version: version}
	dirs, err := clone.moduleDirs(ctx, "HEAD")
	if err != nil {
		return nil, err
	}
	if c.published, _, err = sortModules(dirs); err != nil {
		return nil, err
	}
	for _, dir := range c.published {
		c.tags = append(c.tags, tag(dir, version))
	}
	if err := c.writeChangelog(ctx, now); err != nil {
		return nil, err
	}
	if err := clone.setRequirements(ctx, dirs, version); err != nil {
		return nil, err
	}
	if c.commit, err = clone.commit(ctx, releaseSubject(version)); err != nil {
		return nil, err
	}
	for _, tag := range c.tags {
		if _, err := clone.git(ctx, "tag", "--annotate", "--message", tag, tag); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *candidate) writeChangelog(ctx context.Context, now time.Time) error {
	name := c.path("CHANGELOG.md")
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	changed, err := releaseChangelog(string(content), c.version, now)
	if errors.Is(err, errNothing) && c.version == trialVersion {
		changed, err = string(content), nil
	}
	if err != nil {
		return err
	}
	if changed == string(content) {
		c.changelog, err = c.git(ctx, "rev-parse", "HEAD")
		return err
	}
	if err := os.WriteFile(name, []byte(changed), 0o644); err != nil { //nolint:gosec // the mode that git uses
		return err
	}
	c.changelog, err = c.repository.commit(ctx, "changelog: "+c.version)
	return err
}

// section returns what CHANGELOG.md says of the version.
func (c *candidate) section() (string, error) {
	content, err := os.ReadFile(c.path("CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	_, rest, _ := strings.Cut(string(content), "\n## "+strings.TrimPrefix(c.version, "v")+" - ")
	section, _, _ := strings.Cut(rest, "\n## ")
	return section, nil
}

// tryOut publishes the candidate in a directory and uses it from outside.
func (c *candidate) tryOut(ctx context.Context, dir string) error {
	began := time.Now()
	proxy := filepath.Join(dir, "proxy")
	for _, module := range c.published {
		if err := c.writeProxy(ctx, proxy, c.commit, module, c.version); err != nil {
			return err
		}
	}
	say(began, "%d modules as %s: %s", len(c.published), c.version, strings.Join(c.published, " "))
	o, err := newOutside(ctx, c, dir, proxy, began)
	if err != nil {
		return err
	}
	return o.use(ctx)
}

// take fetches the commits and tags of a candidate.
func (r *repository) take(ctx context.Context, c *candidate) error {
	fetch := []string{"fetch", "--quiet", "--no-tags", c.dir, c.changelog}
	push := []string{"git push --atomic origin HEAD"}
	for _, tag := range c.tags {
		fetch = append(fetch, "refs/tags/"+tag+":refs/tags/"+tag)
		push = append(push, tag)
	}
	if _, err := r.git(ctx, fetch...); err != nil {
		return err
	}
	if _, err := r.git(ctx, "merge", "--quiet", "--ff-only", c.changelog); err != nil {
		return err
	}
	fmt.Printf("%s is there, and nothing is pushed. What is left:\n  %s\n  git checkout %s && make binaries\n", c.version, strings.Join(push, " "), c.version)
	return nil
}
