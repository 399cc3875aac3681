// Package clitest runs the program pglatch as a process in tests. It checks its commands, and the
// locks that they take, hold and leave behind.
package clitest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/pglatch/pglatch/internal/test/gobuild"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// program is the program's name: under this name the test's own executable acts as the program.
const program = "pglatch"

// Binary is the path of the program, while Main runs the tests.
var Binary string

// Main runs the tests of a package of the commands, and exits. The program is the test's own executable,
// so that the package need not link a second one. There, main is the program's main function.
func Main(m *testing.M, main func() int) {
	if filepath.Base(os.Args[0]) == program {
		os.Exit(main())
	}
	os.Exit(with(m, func() error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		return os.Symlink(self, Binary)
	}))
}

// MainOf is Main with the released form of the program. It builds the package in the directory command.
func MainOf(m *testing.M, command string) {
	os.Exit(with(m, func() error { return gobuild.Program(context.Background(), command, Binary) }))
}

// with runs the tests with a program that install puts at Binary.
func with(m *testing.M, install func() error) int {
	dir, err := os.MkdirTemp("", "pglatch-cli-test-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		Binary = filepath.Join(dir, program)
		err = install()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return pgtest.Run(m)
}
