// Command release makes releases of this repository's modules, and tests them like a program
// outside that uses them. Run it through make: release, release-trial, apidiff, binaries.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

const usage = `usage: release [-C DIR] COMMAND

  cut VERSION        make the commits and tags of a release, if programs outside can use it
  trial              do the same in a clone that is removed
  apidiff BASE       what the exported API of each published module lost and got since a commit, or since the latest version if BASE is ""
  binaries OUT [PLATFORM...]  static binaries of pglatch, by default for all platforms, with bills of materials and SHA256SUMS
  modules            the published modules, and the others
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(64)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	dir := flags.String("C", ".", "")
	if err := flags.Parse(args); err != nil {
		return flag.ErrHelp
	}
	r, err := openRepository(ctx, *dir)
	if err != nil {
		return err
	}
	switch command, rest := flags.Arg(0), flags.Args(); {
	case command == "cut" && len(rest) == 2:
		return cut(ctx, r, rest[1], time.Now())
	case command == "trial" && len(rest) == 1:
		return trial(ctx, r, time.Now())
	case command == "apidiff" && len(rest) == 2:
		_, err := apidiff(ctx, r, rest[1], os.Stdout)
		return err
	case command == "binaries" && len(rest) == 2:
		return binaries(ctx, r, rest[1], platforms)
	case command == "binaries" && len(rest) > 2:
		return binaries(ctx, r, rest[1], rest[2:])
	case command == "modules" && len(rest) == 1:
		return listModules(ctx, r)
	}
	flags.Usage()
	return flag.ErrHelp
}

func listModules(ctx context.Context, r *repository) error {
	dirs, err := r.moduleDirs(ctx, "HEAD")
	if err != nil {
		return err
	}
	published, others, err := sortModules(dirs)
	if err != nil {
		return err
	}
	fmt.Printf("published: %s\nothers:    %s\n", strings.Join(published, " "), strings.Join(others, " "))
	return nil
}

// say prints the progress, with the seconds since began.
func say(began time.Time, format string, args ...any) {
	fmt.Printf("%4.0fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
}
