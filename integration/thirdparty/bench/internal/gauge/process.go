package gauge

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Memory returns a field of /proc/PID/status in bytes, or 0 if there is none: proc(5).
func Memory(pid, field string) int64 {
	text, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(text), field+":")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kB, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return 0
	}
	return kB << 10
}

// Processors returns the processor time that processes of this machine have used, in ticks of
// 10 ms: proc(5), stat, utime and stime.
func Processors(pids ...int) (used time.Duration, err error) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		for _, field := range strings.Fields(rest)[11:13] {
			ticks, err := strconv.Atoi(field)
			if err != nil {
				return 0, err
			}
			used += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return used, nil
}

// OwnProcessor returns the processor time that this process has used.
func OwnProcessor() (time.Duration, error) {
	var u syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}
