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

// RaceOptions are GORACE for programs and tests. A program does not sleep for a second when it exits, and the detector's own
// memory may have huge pages. Where a page fault takes long, these halve the time of a short program.
const RaceOptions = "atexit_sleep_ms=0 no_huge_pages_for_shadow=0"

// Command returns a go build command with the race detector and the compiler's flags (-gcflags) of this test. Its
// programs have no debug information, like those of go test, because linking then takes a quarter less time.
func Command(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "go", slices.Concat([]string{"build", "-ldflags=-w"}, flags(), args)...)
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
