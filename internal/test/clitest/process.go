package clitest

import (
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Lives reports whether a process exists and is not a zombie.
func Lives(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, fields, _ := strings.Cut(string(stat), ") ")
	return err == nil && fields[0] != 'Z'
}

// RequireDead waits until none of the processes lives.
func RequireDead(t *testing.T, pids ...int) {
	t.Helper()
	Eventually(t, func() bool { return !slices.ContainsFunc(pids, Lives) }, func() string { return fmt.Sprintf("of processes %v one lives", pids) })
}

// Number waits for the program to print a line "name=number" and returns the number.
func (p *Program) Number(name string) int {
	p.t.Helper()
	n, err := strconv.Atoi(p.Match(&p.Stdout, `(?m)^\s*`+name+`=(\d+)\s*\n`)[1])
	require.NoError(p.t, err)
	return n
}

// HeedInterrupts makes programs react to SIGINT even if the test was started to ignore it, as a
// shell does with background processes.
func HeedInterrupts(t *testing.T) {
	t.Helper()
	c := make(chan os.Signal, 1)
	if signal.Ignored(syscall.SIGINT) {
		signal.Notify(c, syscall.SIGINT)
	}
}

// Family is a command that starts a child and prints both pids.
const Family = "sleep 300 & echo $$ $!; wait"

// Pids waits until Family has printed its pids this many times, and returns the last ones.
func (p *Program) Pids(times int) []int {
	p.t.Helper()
	lines := regexp.MustCompile(`(?m)^(\d+) (\d+)$`)
	Eventually(p.t, func() bool { return len(lines.FindAllString(p.Stdout.String(), -1)) >= times },
		func() string { return p.Stdout.String() + p.Stderr.String() })
	last := lines.FindAllStringSubmatch(p.Stdout.String(), -1)[times-1]
	var all []int
	for _, text := range last[1:] {
		pid, err := strconv.Atoi(text)
		require.NoError(p.t, err)
		all = append(all, pid)
	}
	return all
}
