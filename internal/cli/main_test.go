package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// binary is the program.
var binary string

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "pglatch-cli-test-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = build(filepath.Join(dir, "pglatch"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return pgtest.Run(m)
}

// build makes the program, with the race detector where there is a C compiler.
func build(path string) error {
	binary = path
	if exec.Command("go", "build", "-race", "-o", binary, "github.com/pglatch/pglatch/cmd/pglatch").Run() == nil {
		return nil
	}
	output, err := exec.Command("go", "build", "-o", binary, "github.com/pglatch/pglatch/cmd/pglatch").CombinedOutput()
	if err != nil {
		return fmt.Errorf("building the program: %w\n%s", err, output)
	}
	return nil
}
