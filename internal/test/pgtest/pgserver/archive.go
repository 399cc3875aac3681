package pgserver

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// unpack writes the folder native of an npm archive to dir, which it creates. npm archives cannot contain
// symbolic links, so it also creates those that pg-symlinks.json lists. It writes nothing outside dir.
func unpack(archive []byte, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close() //nolint:errcheck // a directory handle
	if err := root.Chmod(".", 0o755); err != nil {
		return err
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return err
	}
	files := tar.NewReader(unzipped)
	for {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return link(root)
		}
		if err != nil {
			return err
		}
		name, native := strings.CutPrefix(header.Name, "package/native/")
		if !native || header.Typeflag != tar.TypeReg {
			continue
		}
		if err := writeFile(root, name, files, header.Mode&0o111 != 0); err != nil {
			return err
		}
	}
}

// writeFile gives every user read permission, whatever the umask: the server may run as another user.
func writeFile(root *os.Root, name string, content io.Reader, executable bool) error {
	parent := path.Dir(name)
	if err := root.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	for dir := parent; dir != "."; dir = path.Dir(dir) {
		if err := root.Chmod(dir, 0o755); err != nil {
			return err
		}
	}
	mode := fs.FileMode(0o644)
	if executable {
		mode = 0o755
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// link makes the links of pg-symlinks.json. Its paths begin with native/; a link and its target share a folder.
func link(root *os.Root) error {
	text, err := root.ReadFile("pg-symlinks.json")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var links []struct{ Source, Target string }
	if err := json.Unmarshal(text, &links); err != nil {
		return fmt.Errorf("pg-symlinks.json: %w", err)
	}
	for _, l := range links {
		if path.Dir(l.Source) != path.Dir(l.Target) {
			return fmt.Errorf("pg-symlinks.json: %s and %s are in different folders", l.Source, l.Target)
		}
		if err := root.Symlink(path.Base(l.Source), strings.TrimPrefix(l.Target, "native/")); err != nil {
			return err
		}
	}
	return nil
}
