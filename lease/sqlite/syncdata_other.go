//go:build !linux

package sqlite

import "os"

// syncData makes data written to f survive a crash of the machine.
func syncData(f *os.File) error { return f.Sync() }
