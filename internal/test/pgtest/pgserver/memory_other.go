//go:build !linux

package pgserver

// inMemory is empty: only Linux has a directory for this.
func inMemory() string { return "" }
