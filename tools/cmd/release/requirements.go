package main

import (
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
)

// A requirer is a module of ours, with its requirements of ours.
type requirer struct {
	dir, path string
	file      *modfile.File
	ours      []string // paths
	published bool
}

func (r *repository) requirers(dirs []string) ([]*requirer, error) {
	published, _, err := sortModules(dirs)
	if err != nil {
		return nil, err
	}
	var all []*requirer
	for _, dir := range dirs {
		name := r.path(dir, "go.mod")
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		file, err := modfile.Parse(path.Join(dir, "go.mod"), content, nil)
		if err != nil {
			return nil, err
		}
		m := &requirer{dir: dir, path: r.modulePath(dir), file: file, published: slices.Contains(published, dir)}
		if file.Module.Mod.Path != m.path {
			return nil, fmt.Errorf("the module in %s is called %s: nobody would find it", dir, file.Module.Mod.Path)
		}
		for _, q := range file.Require {
			if r.isOurs(q.Mod.Path) {
				m.ours = append(m.ours, q.Mod.Path)
			}
		}
		all = append(all, m)
	}
	return all, nil
}

func (r *repository) isOurs(path string) bool {
	return path == r.module || strings.HasPrefix(path, r.module+"/")
}

// inOrder sorts modules so that each comes after those that it requires.
func inOrder(modules []*requirer) ([]*requirer, error) {
	var done []*requirer
	for len(done) < len(modules) {
		before := len(done)
		for _, m := range modules {
			missing := func(path string) bool {
				return !slices.ContainsFunc(done, func(d *requirer) bool { return d.path == path })
			}
			if missing(m.path) && !slices.ContainsFunc(m.ours, missing) {
				done = append(done, m)
			}
		}
		if len(done) == before {
			return nil, fmt.Errorf("of %d modules %d require each other, or one that is not here", len(modules), len(modules)-before)
		}
	}
	return done, nil
}

// require writes the version into a module's requirements of ours, and removes replace directives
// if the module is published. sums are the lines of go.sum for these requirements.
func (m *requirer) require(r *repository, version string, sums map[string][]string) error {
	for _, path := range m.ours {
		if err := m.file.AddRequire(path, version); err != nil {
			return err
		}
	}
	if m.published {
		for _, replace := range slices.Clone(m.file.Replace) {
			if !r.isOurs(replace.Old.Path) {
				return fmt.Errorf("%s replaces %s: nobody could install a program of it", m.path, replace.Old.Path)
			}
			if err := m.file.DropReplace(replace.Old.Path, replace.Old.Version); err != nil {
				return err
			}
		}
	}
	m.file.Cleanup()
	content, err := m.file.Format()
	if err != nil {
		return err
	}
	if err := os.WriteFile(r.path(m.dir, "go.mod"), content, 0o644); err != nil { //nolint:gosec // the mode that git uses
		return err
	}
	if !m.published || len(m.ours) == 0 {
		return nil // a replaced module has no sum
	}
	return m.addSums(r.path(m.dir, "go.sum"), sums)
}

func (m *requirer) addSums(name string, sums map[string][]string) error {
	content, err := os.ReadFile(filepath.Clean(name))
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	for _, path := range m.ours {
		if sums[path] == nil {
			return fmt.Errorf("%s requires %s, which is not published", m.path, path)
		}
		lines = append(lines, sums[path]...)
	}
	lines = slices.DeleteFunc(lines, func(line string) bool { return line == "" })
	slices.Sort(lines)
	return os.WriteFile(name, []byte(strings.Join(slices.Compact(lines), "\n")+"\n"), 0o644) //nolint:gosec // the mode that git uses
}

// setRequirements writes the version into all modules. The go.sum of a published module has the
// archive hashes of the modules of ours that it requires. So the modules are written one after
// the other, each after those that it requires.
func (r *repository) setRequirements(ctx context.Context, dirs []string, version string) error {
	modules, err := r.requirers(dirs)
	if err != nil {
		return err
	}
	if modules, err = inOrder(modules); err != nil {
		return err
	}
	sums := make(map[string][]string)
	for _, m := range modules {
		if err := m.require(r, version, sums); err != nil {
			return err
		}
		if !m.published {
			continue
		}
		if _, err := r.git(ctx, "add", "--all"); err != nil {
			return err
		}
		tree, err := r.git(ctx, "write-tree")
		if err != nil {
			return err
		}
		if sums[m.path], err = r.sums(tree, m.dir, version); err != nil {
			return err
		}
	}
	return nil
}
