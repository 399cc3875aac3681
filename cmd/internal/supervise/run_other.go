//go:build !unix

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Notify returns a nil channel: see Run.
func Notify() (signals <-chan os.Signal, stop func()) { return nil, func() {} }

// ParseSignal returns SIGTERM, which is never sent: see Run.
func ParseSignal(string) (syscall.Signal, error) { return syscall.SIGTERM, nil }

// Run fails: without process groups it could not keep its guarantees.
func Run(context.Context, Command) (Result, error) {
	return Result{}, startError("", fmt.Errorf("a command under supervision needs a Unix system: %w", errors.ErrUnsupported))
}
