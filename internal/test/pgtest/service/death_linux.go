package service

import "syscall"

// dieWithParent has a child killed when this process is.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
