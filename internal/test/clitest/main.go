// Package clitest runs the program pglatch as a process in tests: its commands, and what
// they take, hold and leave behind.
package clitest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/pglatch/pglatch/internal/cli"
	"github.com/pglatch/pglatch/internal/test/gobuild"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// name is the program's: the test's own executable is the program if it is called by it.
const name = "pglatch"

// Binary is the path of the program, while Main runs the tests.
var Binary string

// Main runs the tests of a package that runs the program, and exits. The program is the
// test's own executable, so that no package has to link another.
func Main(m *testing.M) {
	if filepath.Base(os.Args[0]) == name {
		os.Exit(cli.Main(cli.Options{}))
	}
	os.Exit(with(m, func() error {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		return os.Symlink(self, Binary)
	}))
}

// MainOf is Main with the program as its users have it: that of the package command, which it builds.
func MainOf(m *testing.M, command string) {
	os.Exit(with(m, func() error { return gobuild.Program(context.Background(), command, Binary) }))
}

// with runs the tests with a program that install puts at Binary.
func with(m *testing.M, install func() error) int {
	dir, err := os.MkdirTemp("", "pglatch-cli-test-")
	if err == nil {
		defer func() { _ = os.RemoveAll(dir) }()
		Binary = filepath.Join(dir, name)
		err = install()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return pgtest.Run(m)
}
