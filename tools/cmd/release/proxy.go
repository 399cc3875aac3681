package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/sumdb/dirhash"
	"golang.org/x/mod/zip"
)

// archive writes the go command's archive of a module at a commit or tree.
func (r *repository) archive(w io.Writer, revision, dir, version string) error {
	subdir := dir
	if dir == "." {
		subdir = ""
	}
	return zip.CreateFromVCS(w, module.Version{Path: r.modulePath(dir), Version: version}, r.dir, revision, subdir)
}

// sums returns the lines of go.sum for a module at a commit or tree.
func (r *repository) sums(revision, dir, version string) ([]string, error) {
	file, err := os.CreateTemp("", "pglatch-release-*.zip")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(file.Name()) }()
	err = r.archive(file, revision, dir, version)
	if e := file.Close(); err == nil {
		err = e
	}
	if err != nil {
		return nil, err
	}
	whole, err := dirhash.HashZip(file.Name(), dirhash.Hash1)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(r.path(dir, "go.mod"))
	if err != nil {
		return nil, err
	}
	short, err := goModSum(content)
	path := r.modulePath(dir)
	return []string{path + " " + version + " " + whole, path + " " + version + "/go.mod " + short}, err
}

func goModSum(content []byte) (string, error) {
	return dirhash.Hash1([]string{"go.mod"}, func(string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	})
}

// writeProxy adds a module at a commit to a directory with the layout of the module proxy
// protocol (Go Modules Reference, "GOPROXY protocol"), for GOPROXY=file://.
func (r *repository) writeProxy(ctx context.Context, proxy, commit, dir, version string) error {
	escaped, err := module.EscapePath(r.modulePath(dir))
	if err != nil {
		return err
	}
	base := filepath.Join(proxy, filepath.FromSlash(escaped), "@v")
	if err := os.MkdirAll(base, 0o755); err != nil { //nolint:gosec // nothing secret
		return err
	}
	when, err := r.git(ctx, "show", "--no-patch", "--format=%cI", commit)
	if err != nil {
		return err
	}
	instant, err := time.Parse(time.RFC3339, when)
	if err != nil {
		return err
	}
	info, err := json.Marshal(map[string]any{"Version": version, "Time": instant.UTC()})
	if err != nil {
		return err
	}
	file := "go.mod"
	if dir != "." {
		file = dir + "/go.mod"
	}
	requirements, err := output(exec.CommandContext(ctx, "git", "-C", r.dir, "show", commit+":"+file))
	if err != nil {
		return err
	}
	var archive bytes.Buffer
	if err := r.archive(&archive, commit, dir, version); err != nil {
		return fmt.Errorf("the archive of %s: %w", r.modulePath(dir), err)
	}
	list, err := os.OpenFile(filepath.Join(base, "list"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644) //nolint:gosec // nothing secret
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(list, version)
	if e := list.Close(); err == nil {
		err = e
	}
	for suffix, content := range map[string][]byte{".info": info, ".mod": requirements, ".zip": archive.Bytes()} {
		if err == nil {
			err = os.WriteFile(filepath.Join(base, version+suffix), content, 0o644) //nolint:gosec // nothing secret
		}
	}
	return err
}
