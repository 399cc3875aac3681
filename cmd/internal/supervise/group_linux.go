package supervise

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// hasLiving reports whether the group has a process other than zombies: the first process of a
// container may reap late or never. Without /proc it returns true.
func hasLiving(group int) bool {
	dir, err := os.Open("/proc")
	if err != nil {
		return true
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return true
	}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p := readStatus(pid); p.group == group && p.state != 'Z' && p.state != 'X' {
				return true
			}
		}
	}
	return false
}

// A status is a part of proc_pid_stat(5).
type status struct {
	state                  rune
	parent, group, session int
}

// readStatus returns the status of a process, zero if there is none.
func readStatus(pid int) status {
	var s status
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return s
	}
	fields := stat[bytes.LastIndexByte(stat, ')')+1:] // the name before it can contain any character
	if _, err := fmt.Sscanf(string(fields), " %c %d %d %d", &s.state, &s.parent, &s.group, &s.session); err != nil {
		return status{}
	}
	return s
}
