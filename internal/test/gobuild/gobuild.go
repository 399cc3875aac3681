// Package gobuild compiles programs for tests with the flags of the test itself, so that they share compiled packages
// with go test.
package gobuild

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
)

// Command returns a go build command with the race detector if this test has it.
func Command(ctx context.Context, args ...string) *exec.Cmd {
	if race {
		args = slices.Insert(args, 0, "-race")
	}
	return exec.CommandContext(ctx, "go", slices.Insert(args, 0, "build")...)
}

// Program compiles a package to an executable.
func Program(ctx context.Context, pkg, executable string) error {
	output, err := Command(ctx, "-o", executable, pkg).CombinedOutput()
	if err != nil {
		return fmt.Errorf("building %s: %w\n%s", pkg, err, output)
	}
	return nil
}
