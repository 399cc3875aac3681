//go:build !linux

package service

import "syscall"

// dieWithParent does nothing: only Linux tells a child that its parent died.
func dieWithParent(*syscall.SysProcAttr) {}
