package pgserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// installPackage lets the system's package manager install PostgreSQL where that needs no question: apt-get
// for root, or Homebrew.
func (f finder) installPackage(ctx context.Context) error {
	if f.getenv("PGLATCH_NO_DOWNLOAD") == "1" {
		return errors.New("PGLATCH_NO_DOWNLOAD is 1")
	}
	_, aptErr := f.lookPath("apt-get")
	_, brewErr := f.lookPath("brew")
	switch {
	case f.goos == "linux" && aptErr == nil && f.as.drop:
		return f.aptInstall(ctx)
	case f.goos == "darwin" && brewErr == nil && !f.as.drop:
		formula := fmt.Sprintf("postgresql@%d", cmp.Or(f.major, defaultMajor))
		return f.run(ctx, "", []string{"HOMEBREW_NO_AUTO_UPDATE=1"}, "brew", "install", formula)
	}
	return errors.New("none that runs without asking")
}

// aptInstall installs Debian's package without the cluster and the service that it would make:
// see createcluster.conf in pg_createcluster(1).
func (f finder) aptInstall(ctx context.Context) error {
	name := "postgresql"
	if f.major != 0 {
		name = fmt.Sprintf("postgresql-%d", f.major)
	}
	conf := filepath.Join(f.aptConf, "pglatch.conf")
	if err := os.MkdirAll(f.aptConf, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(conf, []byte("create_main_cluster = false\n"), 0o644); err != nil {
		return err
	}
	defer os.Remove(conf) //nolint:errcheck // it concerns this installation only
	env := []string{"DEBIAN_FRONTEND=noninteractive"}
	install := func() error {
		return f.run(ctx, "", env, "apt-get", "install", "-y", "--no-install-recommends", name)
	}
	if install() == nil {
		return nil
	}
	if err := f.run(ctx, "", env, "apt-get", "update"); err != nil { // a fresh image has no package lists
		return err
	}
	return install()
}
