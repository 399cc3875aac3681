package file

import (
	"errors"
	"io/fs"
	"os"
	"strings"
)

// bootID identifies the boot of the machine, and the offset by which a time namespace shifts CLOCK_BOOTTIME
// (time_namespaces(7)).
func bootID() (string, bool) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	boot := strings.TrimSpace(string(id))
	if err != nil || boot == "" {
		return "", false
	}
	offsets, err := os.ReadFile("/proc/self/timens_offsets")
	if errors.Is(err, fs.ErrNotExist) { // Linux before 5.6
		return boot, true
	}
	if err != nil {
		return "", false
	}
	for line := range strings.Lines(string(offsets)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == "boottime" && (f[1] != "0" || f[2] != "0") {
			boot += "+" + f[1] + "." + f[2]
		}
	}
	return boot, true
}
