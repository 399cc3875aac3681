//go:build unix

package sqlite

import (
	"errors"
	"os"
)

// syncDir makes a new name in a directory survive a crash of the machine.
func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
