package file

import (
	"fmt"
	"os"
	"time"
)

// corruptInfix separates the name of a file from the ends of the names of corrupt files that were kept.
const corruptInfix = ".corrupt-"

// announced returns an error that says when a corrupt file will be replaced.
func (b *Backend) announced(damage *CorruptError, left time.Duration) error {
	said := *damage
	said.passing = true
	said.Remedy = fmt.Sprintf("an attempt in %v replaces it, unless it changes, and keeps it as %s.corrupt-*", left.Round(time.Millisecond), b.path)
	return &said
}

// keepCorrupt links the corrupt file to another name, until it is replaced. A rename could remove a file that
// another process has put in its place, if this process was stopped before.
func (b *Backend) keepCorrupt() error {
	return os.Link(b.path, b.path+corruptInfix+time.Now().UTC().Format("20060102T150405.000000000Z"))
}
