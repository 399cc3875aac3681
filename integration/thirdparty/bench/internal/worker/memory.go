package worker

import (
	"os"
	"strconv"
	"strings"
)

// resident returns a field of /proc/PID/status in bytes, or 0 if there is none: proc(5).
func resident(pid, field string) int64 {
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
