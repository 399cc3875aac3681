package actions

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/pglatch/pglatch/internal/legible"
)

// The outcomes of an action.
const (
	begun   = "begun"   // the line before the action; the next one of the same id says how it ended
	done    = "done"    // it was done, or all that it asked accepted it
	failed  = "failed"  // it was not done
	unknown = "unknown" // it may have been done
	refused = "refused" // the person may not, or the request was not one that a page sends
)

// An Entry is one line of the audit.
type Entry struct {
	Time    time.Time `json:"time"`
	ID      string    `json:"id"`
	Who     string    `json:"who"` // "" = nobody who is known
	Role    string    `json:"role,omitempty"`
	From    string    `json:"from"`
	Action  string    `json:"action"`
	Target  string    `json:"target,omitempty"`
	Why     string    `json:"why,omitempty"`
	Shown   string    `json:"shown,omitempty"` // what the person confirmed
	Outcome string    `json:"outcome"`
	Detail  string    `json:"detail,omitempty"`
	Skipped uint64    `json:"skipped,omitempty"` // refusals before it that have no line, because they were too many
}

const (
	maxText = 1000      // bytes of one text of an Entry
	recent  = 50        // entries that the page shows
	tail    = 256 << 10 // bytes at the end of the file that are read at the start
)

// An audit is a file of JSON lines, and its newest entries.
type audit struct {
	name string

	mu      sync.Mutex
	file    *os.File
	entries []Entry // the oldest first; one for each id
	skipped uint64
}

// openAudit opens the file, and makes it if it is missing. Nobody but its owner can read a new one.
func openAudit(name string) (*audit, error) {
	a := &audit{name: name}
	if err := a.reopen(); err != nil {
		return nil, err
	}
	if err := a.read(); err != nil {
		_ = a.file.Close()
		return nil, err
	}
	return a, nil
}

// reopen opens the file again by its name: somebody may have renamed it. With an error the old one stays in use.
func (a *audit) reopen() error {
	file, err := os.OpenFile(a.name, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.file != nil {
		_ = a.file.Close() // each line was synced
	}
	a.file = file
	return nil
}

// read reads the entries at the end of the file. It ignores lines that are not whole.
func (a *audit) read() error {
	info, err := a.file.Stat()
	if err != nil {
		return err
	}
	content, err := io.ReadAll(io.NewSectionReader(a.file, max(0, info.Size()-tail), tail))
	if err != nil {
		return fmt.Errorf("reading %s: %w", a.name, err)
	}
	for line := range bytes.Lines(content) {
		var e Entry
		if json.Unmarshal(line, &e) == nil && e.ID != "" {
			a.remember(e)
		}
	}
	if n := len(content); n > 0 && content[n-1] != '\n' { // a crash left half a line
		_, err = a.file.WriteString("\n")
	}
	return err
}

// add writes an entry to the disk, and shows it.
func (a *audit) add(e Entry) error {
	for _, text := range []*string{&e.Who, &e.From, &e.Action, &e.Target, &e.Why, &e.Shown, &e.Detail} {
		*text = legible.Clamp(legible.Line(*text), maxText)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	e.Time, e.Skipped = time.Now().UTC(), a.skipped
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	if _, err := a.file.Write(append(line, '\n')); err != nil {
		return err
	}
	if err := a.file.Sync(); err != nil && e.Outcome != refused {
		return err
	}
	a.skipped = 0
	a.remember(e)
	return nil
}

// skip counts a refusal that gets no line.
func (a *audit) skip() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.skipped++
}

func (a *audit) remember(e Entry) {
	a.entries = slices.DeleteFunc(a.entries, func(o Entry) bool { return o.ID == e.ID })
	a.entries = append(a.entries, e)
	if len(a.entries) > recent {
		a.entries = a.entries[1:]
	}
}

// newest returns the newest entries, the newest first.
func (a *audit) newest() []Entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := slices.Clone(a.entries)
	slices.Reverse(all)
	return all
}

func (a *audit) close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.file.Close()
}
