package sqlite

import "os"

// lockInode locks the file itself, whatever its name.
func lockInode(f *os.File) error { return flock(f) }
