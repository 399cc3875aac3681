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
	signals := map[string]syscall.Signal{
		"TERM": syscall.SIGTERM, "INT": syscall.SIGINT, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT, "KILL": syscall.SIGKILL, "USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2,
	}
	if s, ok := signals[strings.TrimPrefix(strings.ToUpper(text), "SIG")]; ok {
		return s, nil
	}
	return 0, fmt.Errorf("unknown signal %q: use TERM, INT, HUP, QUIT, KILL, USR1, USR2 or a number from 1 to 64", text)
}
