//go:build !linux

package file

// bootID returns false: this platform has no clock that the processes of a boot share.
func bootID() (string, bool) { return "", false }
