//go:build !unix

package file

// syncDir does nothing: a directory cannot be opened for it.
func syncDir(string) error { return nil }
