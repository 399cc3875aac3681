package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
)

// outside simulates users of a release: their programs get our modules from a module proxy and
// others from the machine's, and know no replace directives and no workspace.
type outside struct {
	*candidate
	dir, proxy string
	env        []string
	began      time.Time
}

func newOutside(ctx context.Context, c *candidate, dir, proxy string, began time.Time) (*outside, error) {
	out, err := output(exec.CommandContext(ctx, "go", "env", "-json", "GOPROXY", "GOMODCACHE"))
	if err != nil {
		return nil, err
	}
	var machine struct{ GOPROXY, GOMODCACHE string }
	if err := json.Unmarshal(out, &machine); err != nil {
		return nil, err
	}
	o := &outside{candidate: c, dir: dir, proxy: proxy, began: began}
	// The machine's download cache has the form of a proxy too. Our own modules come before it, into
	// a cache that is removed, so that the same version can be tried repeatedly.
	o.env = append(os.Environ(),
		"GOPROXY=file://"+proxy+",file://"+machine.GOMODCACHE+"/cache/download,"+machine.GOPROXY,
		"GOMODCACHE="+filepath.Join(dir, "modcache"), "GOBIN="+filepath.Join(dir, "bin"),
		"GOFLAGS=-mod=mod -trimpath -modcacherw -buildvcs=false", "GOWORK=off", "GONOSUMDB="+c.module, "GOPRIVATE=", "GONOPROXY=",
	)
	return o, nil
}

func (o *outside) run(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(slices.Clone(o.env), env...)
	out, err := output(cmd)
	return string(out), err
}

// use imports every published package, and installs every published program.
func (o *outside) use(ctx context.Context) error {
	for _, dir := range o.published {
		if err := o.consistent(ctx, dir); err != nil {
			return err
		}
		packages, programs, err := o.packages(ctx, dir)
		if err != nil {
			return err
		}
		if len(packages) > 0 {
			if err := o.importAll(ctx, dir, packages); err != nil {
				return fmt.Errorf("a program that imports %s %s: %w", o.modulePath(dir), o.version, err)
			}
			say(o.began, "%s: a program imports its %d packages", o.modulePath(dir), len(packages))
		}
		for _, program := range programs {
			if err := o.install(ctx, program); err != nil {
				return err
			}
			say(o.began, "%s: installed, and says its version", program)
		}
	}
	return o.sameFromTags(ctx)
}

// consistent checks the go.mod that a user gets.
func (o *outside) consistent(ctx context.Context, dir string) error {
	content, err := o.git(ctx, "show", o.commit+":"+path.Join(dir, "go.mod"))
	if err != nil {
		return err
	}
	file, err := modfile.Parse(path.Join(dir, "go.mod"), []byte(content), nil)
	if err != nil {
		return err
	}
	if len(file.Replace) > 0 {
		return fmt.Errorf("%s replaces %s: nobody could install a program of it", o.modulePath(dir), file.Replace[0].Old.Path)
	}
	for _, require := range file.Require {
		if o.isOurs(require.Mod.Path) && require.Mod.Version != o.version {
			return fmt.Errorf("%s requires %s, which is not of this release", o.modulePath(dir), require.Mod)
		}
	}
	return nil
}

// packages returns the packages that programs outside can import, and the programs that they can install.
func (o *outside) packages(ctx context.Context, dir string) (packages, programs []string, err error) {
	out, err := o.run(ctx, o.path(dir), nil, "go", "list", "-find", "-f", "{{if .GoFiles}}{{.Name}} {{.ImportPath}}{{end}}", "./...")
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(out) {
		name, path, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case slices.Contains(strings.Split(path, "/"), "internal"):
		case name != "main":
			packages = append(packages, path)
		case strings.HasPrefix(path, o.module+"/cmd/"):
			programs = append(programs, path)
		}
	}
	return packages, programs, nil
}

// importAll builds and runs a program that imports packages of one module, and checks which
// modules the program contains.
func (o *outside) importAll(ctx context.Context, dir string, packages []string) error {
	program := filepath.Join(o.dir, "outside", filepath.FromSlash(dir), "program")
	if err := os.MkdirAll(program, 0o755); err != nil { //nolint:gosec // nothing secret
		return err
	}
	sums, err := os.ReadFile(o.path(dir, "go.sum"))
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	var source strings.Builder
	source.WriteString("package main\n\nimport (\n")
	for _, p := range packages {
		fmt.Fprintf(&source, "\t_ %q\n", p)
	}
	source.WriteString(")\n\nfunc main() {}\n")
	for name, content := range map[string]string{
		"go.mod":  fmt.Sprintf("module outside.test/program\n\ngo 1.26.0\n\nrequire %s %s\n", o.modulePath(dir), o.version),
		"go.sum":  string(sums),
		"main.go": source.String(),
	} {
		if err := os.WriteFile(filepath.Join(program, name), []byte(content), 0o644); err != nil { //nolint:gosec // nothing secret
			return err
		}
	}
	if _, err := o.run(ctx, program, nil, "go", "build", "-o", "program", "."); err != nil {
		return err
	}
	if _, err := o.run(ctx, program, nil, filepath.Join(program, "program")); err != nil {
		return err
	}
	return o.madeOf(ctx, filepath.Join(program, "program"))
}

// madeOf fails if a program contains a module of ours in another version, or a replaced one.
func (o *outside) madeOf(ctx context.Context, program string) error {
	out, err := o.run(ctx, o.dir, nil, "go", "version", "-m", program)
	if err != nil {
		return err
	}
	for line := range strings.Lines(out) {
		fields := strings.Fields(line)
		if len(fields) < 3 {
			continue
		}
		replaced := fields[0] == "=>"
		wrong := (fields[0] == "dep" || fields[0] == "mod") && o.isOurs(fields[1]) && fields[2] != o.version
		if replaced || wrong {
			return fmt.Errorf("%s has %q", filepath.Base(program), strings.TrimSpace(line))
		}
	}
	return nil
}

func (o *outside) install(ctx context.Context, program string) error {
	if _, err := o.run(ctx, o.dir, nil, "go", "install", program+"@"+o.version); err != nil {
		return err
	}
	binary := filepath.Join(o.dir, "bin", path.Base(program))
	if err := o.madeOf(ctx, binary); err != nil {
		return err
	}
	said, err := o.run(ctx, o.dir, nil, binary, "--version")
	if err == nil && !slices.Contains(strings.Fields(said), o.version) {
		err = fmt.Errorf("%s --version says %q, and not %s", path.Base(program), strings.TrimSpace(said), o.version)
	}
	return err
}

// sameFromTags fails if the go command's archives of the tags differ from the tested archives,
// whose sums the release contains.
func (o *outside) sameFromTags(ctx context.Context) error {
	env := []string{
		"GOPROXY=direct", "GOMODCACHE=" + filepath.Join(o.dir, "direct"), "GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url.file://" + o.candidate.dir + ".insteadOf", "GIT_CONFIG_VALUE_0=https://" + o.module,
	}
	for _, dir := range o.published {
		module := o.modulePath(dir) + "@" + o.version
		out, err := o.run(ctx, o.dir, env, "go", "mod", "download", "-json", module)
		if err != nil {
			return err
		}
		var got struct{ Sum, GoModSum string }
		if err := json.Unmarshal([]byte(out), &got); err != nil {
			return err
		}
		want, err := o.sums(o.commit, dir, o.version)
		if err != nil {
			return err
		}
		if !strings.HasSuffix(want[0], " "+got.Sum) || !strings.HasSuffix(want[1], " "+got.GoModSum) {
			return fmt.Errorf("the go command makes %s of the tag for %s, and not what was tried: %q", got, module, want)
		}
	}
	say(o.began, "the go command makes the same archives of the tags")
	return nil
}
