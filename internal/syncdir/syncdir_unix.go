//go:build unix

// Package syncdir makes the names in a directory survive a crash of the machine.
package syncdir

import (
	"errors"
	"os"
)

// Sync writes the names in a directory to the disk.
func Sync(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
