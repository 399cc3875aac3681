package clitest

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
)

// lives reports whether a process exists and is not a zombie.
func lives(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, fields, _ := strings.Cut(string(stat), ") ")
	return err == nil && fields[0] != 'Z'
}

// RequireDead waits until none of the processes lives.
func RequireDead(t *testing.T, pids ...int) {
	t.Helper()
	await.Until(t, await.Soon, func() bool { return !slices.ContainsFunc(pids, lives) }, "of processes %v one lives", pids)
}

// Number waits for the program to print a line "name=number" and returns the number.
func (p *Program) Number(name string) int {
	p.t.Helper()
	n, err := strconv.Atoi(p.Match(&p.Stdout, `(?m)^\s*`+name+`=(\d+)\s*\n`)[1])
	require.NoError(p.t, err)
	return n
}

// heedInterrupts makes programs react to SIGINT even if the test was started to ignore it, as a
// shell does with background processes.
func heedInterrupts(t *testing.T) {
	t.Helper()
	c := make(chan os.Signal, 1)
	if signal.Ignored(syscall.SIGINT) {
		signal.Notify(c, syscall.SIGINT)
	}
}
