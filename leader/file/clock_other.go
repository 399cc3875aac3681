//go:build !linux

package file

// bootID returns false: no clock here is shared by the processes of a boot.
func bootID() (string, bool) { return "", false }
