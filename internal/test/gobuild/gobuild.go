// Package gobuild compiles programs for tests with the flags of the test itself, so that they share compiled packages
// with go test.
package gobuild

import (
	"context"
	"fmt"
	"os/exec"
	"runtime/debug"
	"slices"
)

// Command returns a go build command with the race detector and the compiler's flags (-gcflags) of this test.
func Command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "go", slices.Concat([]string{"build"}, flags(), args)...)
}

func flags() (flags []string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, s := range info.Settings {
		if s.Key == "-race" || s.Key == "-gcflags" {
			flags = append(flags, s.Key+"="+s.Value)
		}
	}
	return flags
}

// Program compiles the package in a directory, which may be of another module, to an executable.
func Program(ctx context.Context, directory, executable string) error {
	build := Command(ctx, "-o", executable, ".")
	build.Dir = directory
	output, err := build.CombinedOutput()
	if err != nil {
		return fmt.Errorf("building %s: %w\n%s", directory, err, output)
	}
	return nil
}
