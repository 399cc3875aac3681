package service

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/notrun"
)

// clockSource replaces gettimeofday, from which PostgreSQL has its time. A file has the difference in microseconds.
const clockSource = `
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>
#include <time.h>

static volatile int64_t *ahead;

__attribute__((constructor)) static void begin(void) {
	const char *name = getenv("PGLATCH_CLOCK");
	int file = name ? open(name, O_RDONLY) : -1;
	void *p = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *ahead, PROT_READ, MAP_SHARED, file, 0);
	if (p == MAP_FAILED)
		abort();
	ahead = p;
}

int gettimeofday(struct timeval *tv, void *zone) {
	struct timespec now;
	if (clock_gettime(CLOCK_REALTIME, &now))
		return -1;
	int64_t us = now.tv_sec * INT64_C(1000000) + now.tv_nsec / 1000 + (ahead ? *ahead : 0);
	tv->tv_sec = us / 1000000;
	tv->tv_usec = us % 1000000;
	return 0;
}
`

// A Clock is the clock of a PostgreSQL server that a test can set while the server runs. Other programs keep the
// clock of the machine.
type Clock struct {
	Env  []string // for pgserver.Options.Env
	file string
}

// NewClock returns the clock of a server to start. It is that of the machine until Set. Without a C compiler the test
// reports that it did not run, and is skipped; in CI it fails.
func NewClock(t *testing.T) *Clock {
	t.Helper()
	compiler := notrun.Program(t, "no C compiler", "gcc", "clang")
	dir := Dir(t, map[string][]byte{"ahead": make([]byte, 8)})
	library := filepath.Join(dir, "clock.so")
	compile := exec.CommandContext(t.Context(), compiler, "-shared", "-fPIC", "-o", library, "-x", "c", "-")
	compile.Stdin = strings.NewReader(clockSource)
	out, err := compile.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, os.Chmod(library, 0o755)) // the server's account loads it
	c := &Clock{file: filepath.Join(dir, "ahead")}
	c.Env = []string{"LD_PRELOAD=" + library, "PGLATCH_CLOCK=" + c.file}
	return c
}

// Set steps the clock: from now on it is ahead of that of the machine, or behind it.
func (c *Clock) Set(t *testing.T, ahead time.Duration) {
	t.Helper()
	file, err := os.OpenFile(c.file, os.O_WRONLY, 0) // without truncation: the server has mapped it
	require.NoError(t, err)
	defer func() { require.NoError(t, file.Close()) }()
	_, err = file.Write(binary.NativeEndian.AppendUint64(nil, uint64(ahead.Microseconds())))
	require.NoError(t, err)
}
