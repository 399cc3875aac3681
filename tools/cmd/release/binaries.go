package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// platforms are the default platforms of pglatch.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// billSuffix ends the name of a program's bill of materials.
const billSuffix = ".cdx.json"

// binaries builds pglatch of HEAD for platforms into a directory. Beside each program is its bill of materials, and
// SHA256SUMS names both. It builds without cgo, so that
// the programs need no system library. The same commit yields the same files. Their version is
// the tag of HEAD, or one made from the commit. It builds in a clone without changes.
func binaries(ctx context.Context, r *repository, out string, on []string) error {
	began := time.Now()
	out, err := filepath.Abs(out)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil { //nolint:gosec // nothing secret
		return err
	}
	return r.inClone(ctx, func(clone *repository, _ string) error {
		if _, err := clone.git(ctx, "fetch", "--quiet", "--tags", "origin"); err != nil {
			return err
		}
		var sums strings.Builder
		for _, platform := range on {
			name, content, err := binary(ctx, clone, out, platform)
			if err != nil {
				return err
			}
			bill, err := billOf(filepath.Join(out, name), content)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(out, name+billSuffix), bill, 0o644); err != nil { //nolint:gosec // nothing secret
				return err
			}
			fmt.Fprintf(&sums, "%x  %s\n%x  %s\n", sha256.Sum256(content), name, sha256.Sum256(bill), name+billSuffix)
			say(began, "%s, %d MB", name, len(content)>>20)
		}
		return os.WriteFile(filepath.Join(out, "SHA256SUMS"), []byte(sums.String()), 0o644) //nolint:gosec // nothing secret
	})
}

// binary builds pglatch for one platform, and runs it if this machine can.
func binary(ctx context.Context, r *repository, out, platform string) (name string, content []byte, err error) {
	system, processor, _ := strings.Cut(platform, "/")
	name = "pglatch-" + system + "-" + processor
	if system == "windows" {
		name += ".exe"
	}
	file := filepath.Join(out, name)
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", file, "./cmd/pglatch")
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOOS="+system, "GOARCH="+processor)
	if _, err := output(cmd); err != nil {
		return "", nil, err
	}
	if system == runtime.GOOS && processor == runtime.GOARCH {
		said, err := output(exec.CommandContext(ctx, file, "--version"))
		if err != nil {
			return "", nil, err
		}
		if strings.Contains(string(said), "devel") {
			return "", nil, fmt.Errorf("%s does not know its version: it says %q", name, said)
		}
		fmt.Print(string(said))
	}
	content, err = os.ReadFile(filepath.Clean(file))
	return name, content, err
}
