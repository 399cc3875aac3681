//go:build unix && !linux

package supervise

import (
	"os"
	"syscall"
)

// Only Linux notifies a child that its parent died.
func dieWithParent(*syscall.SysProcAttr) {}

// Job control exists only on Linux: elsewhere a child does not get the terminal, and Ctrl-Z stops
// only this process.
type terminal struct{}

func openTerminal() *terminal                { return nil }
func (*terminal) isFor(Command) bool         { return false }
func (*terminal) isLent() bool               { return false }
func (*terminal) close()                     {}
func (*terminal) giveTo(int) bool            { return false }
func (*terminal) takeBack()                  {}
func notifyStop() (<-chan os.Signal, func()) { return nil, func() {} }
func stopSelf(bool)                          {}
func orphaned() bool                         { return false }
func suspendPends(int) bool                  { return false }

func hasLiving(int) bool { return true }

func goOnUntilStarted() func() { return func() {} }
