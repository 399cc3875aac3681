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
	said.passing = true
	said.Remedy = fmt.Sprintf("an attempt in %v replaces it, unless it changes, and keeps it as %s.corrupt-*", left.Round(time.Millisecond), b.path)
	return &said
}

// keepCorrupt keeps the corrupt file by another name, until it is replaced. A rename would
// take away what another process has put in its place, if this one was stopped before.
func (b *Backend) keepCorrupt() error {
	return os.Link(b.path, b.path+corruptInfix+time.Now().UTC().Format("20060102T150405.000000000Z"))
}
