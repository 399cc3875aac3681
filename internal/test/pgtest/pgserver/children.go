package pgserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// children lists the processes whose parent is pid: from /proc where there is one (a small image has no ps),
// else from ps.
func children(pid int) ([]int, error) {
	if stats, _ := filepath.Glob("/proc/[0-9]*/stat"); len(stats) > 0 {
		return childrenOf(pid, procTable(stats)), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("pgserver: list processes: %w", err)
	}
	return childrenOf(pid, strings.Split(string(out), "\n")), nil
}

// procTable turns stat files, "pid (name) state ppid ...", into lines "pid ppid".
func procTable(stats []string) []string {
	var lines []string
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		name := strings.LastIndexByte(string(text), ')')
		if fields := strings.Fields(string(text[name+1:])); len(fields) > 1 {
			lines = append(lines, filepath.Base(filepath.Dir(path))+" "+fields[1])
		}
	}
	return lines
}

func childrenOf(parent int, lines []string) []int {
	var pids []int
	for _, line := range lines {
		fields := strings.Fields(line)
		if len(fields) != 2 || fields[1] != strconv.Itoa(parent) {
			continue
		}
		if pid, err := strconv.Atoi(fields[0]); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}
