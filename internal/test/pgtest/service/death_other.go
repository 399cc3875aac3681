//go:build !linux

package service

import "syscall"

// dieWithParent does nothing: only Linux notifies a child that its parent died.
func dieWithParent(*syscall.SysProcAttr) {}
