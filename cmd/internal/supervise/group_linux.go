package supervise

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
)

// hasLiving reports whether the group has a process other than zombies: the first process of a
// container may reap late or never. Without /proc it returns true.
func hasLiving(group int) bool {
	all, err := processes()
	if err != nil {
		return true
	}
	return slices.ContainsFunc(all, func(pid int) bool {
		p := readStatus(pid)
		return p.group == group && p.state != 'Z' && p.state != 'X'
	})
}

// processes returns the ids of all processes.
func processes() (all []int, err error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			all = append(all, pid)
		}
	}
	return all, err
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
