//go:build !linux

package proctest

import "syscall"

// dieWithParent does nothing: only Linux notifies a child that its parent died.
func dieWithParent(*syscall.SysProcAttr) {}
