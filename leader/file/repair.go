package file

import (
	"fmt"
	"os"
	"time"
)

// corruptInfix is between the name of a file and the end of the names of those that
// were put aside.
const corruptInfix = ".corrupt-"

// announced says that a corrupt file is going to be replaced.
func (b *Backend) announced(damage *CorruptError, left time.Duration) error {
	said := *damage
	said.Remedy = fmt.Sprintf("an attempt in %v replaces it, unless it changes, and keeps it as %s.corrupt-*", left.Round(time.Millisecond), b.path)
	return &said
}

// putAside keeps the corrupt file. If the process dies before the new one is there,
// the file is missing, and whoever led is waited for again.
func (b *Backend) putAside() error {
	return os.Rename(b.path, b.path+corruptInfix+time.Now().UTC().Format("20060102T150405.000000000Z"))
}
