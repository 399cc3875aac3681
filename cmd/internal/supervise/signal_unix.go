//go:build unix

package supervise

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Notify returns a channel with the signals that a Command should forward: INT, TERM, HUP, QUIT,
// USR1 and USR2.
func Notify() (signals <-chan os.Signal, stop func()) {
	return NotifyOf(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
}

// ParseSignal parses a signal name or number: TERM, SIGTERM, 15. The names are those of signals
// that end a program by default.
func ParseSignal(text string) (syscall.Signal, error) {
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= 64 {
		return syscall.Signal(n), nil
	}
	switch strings.TrimPrefix(strings.ToUpper(text), "SIG") {
	case "TERM":
		return syscall.SIGTERM, nil
	case "INT":
		return syscall.SIGINT, nil
	case "HUP":
		return syscall.SIGHUP, nil
	case "QUIT":
		return syscall.SIGQUIT, nil
	case "KILL":
		return syscall.SIGKILL, nil
	case "USR1":
		return syscall.SIGUSR1, nil
	case "USR2":
		return syscall.SIGUSR2, nil
	}
	return 0, fmt.Errorf("unknown signal %q: use TERM, INT, HUP, QUIT, KILL, USR1, USR2 or a number from 1 to 64", text)
}
