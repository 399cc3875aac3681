package pgserver

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// fromTemplate copies the data directory that the first server of this installation left in the cache, or else makes it
// and leaves a copy there. A run of all tests starts a hundred servers, and initdb would need most of a second of a
// processor's time for each. All servers of an installation thus have one system identifier, as if each were restored
// from a backup, but for those with Options.OwnSystem.
func (s *Server) fromTemplate(ctx context.Context) error {
	if s.opts.OwnSystem {
		return s.initdb(ctx)
	}
	cache := cacheDir(s.as, os.Getenv)
	id := sha256.Sum256([]byte(s.install.BinDir))
	template := filepath.Join(cache, fmt.Sprintf("data-%s-%x", s.install.Version, id[:8]))
	if _, err := os.Stat(template); err == nil {
		return s.as.copyData(template, s.dataDir())
	}
	unlock, err := lockCache(cache, s.as)
	if err != nil { // this user has no cache
		return s.initdb(ctx)
	}
	defer unlock()
	if _, err := os.Stat(template); err == nil { // another process has made it meanwhile
		return s.as.copyData(template, s.dataDir())
	}
	if err := s.initdb(ctx); err != nil {
		return err
	}
	temp := filepath.Join(cache, "copying")
	_ = os.RemoveAll(temp) // the remains of a killed process
	if s.as.copyData(s.dataDir(), temp) == nil {
		_ = os.Rename(temp, template) // without a template, the next server makes one
	}
	return nil
}

// copyData copies a data directory, without files that belong to the server that runs there. Files may vanish meanwhile.
func (a account) copyData(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, from)
		switch filepath.Dir(name) {
		case "/pg_replslot", "/pg_dynshmem", "/pg_notify", "/pg_serial", "/pg_snapshots", "/pg_stat_tmp", "/pg_subtrans":
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		switch {
		case name == "/postmaster.pid" || name == "/postmaster.opts":
			return nil
		case entry.IsDir():
			return a.mkdir(to+name, 0o700)
		}
		return a.copyFile(path, to+name)
	})
}

func (a account) copyFile(from, to string) error {
	source, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer source.Close() //nolint:errcheck // opened for reading
	return a.create(to, source)
}

// create makes a file that belongs to the account.
func (a account) create(path string, content io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close(), a.own(path))
}
