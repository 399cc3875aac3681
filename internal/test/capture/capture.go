// Package capture keeps text that one goroutine writes and another one reads, such as a log.
package capture

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// A Text keeps what is written to it. The zero value is empty.
type Text struct {
	mu      sync.Mutex
	text    []byte
	read    int           // bytes that Line has returned
	changed chan struct{} // closed by the next Write or End; nil = nobody waits
	ended   bool
}

// Write appends to the text.
func (x *Text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.text = append(x.text, p...)
	x.notifyLocked()
	return len(p), nil
}

// End says that nothing more will be written.
func (x *Text) End() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended = true
	x.notifyLocked()
}

func (x *Text) notifyLocked() {
	if x.changed != nil {
		close(x.changed)
		x.changed = nil
	}
}

// String returns the whole text.
func (x *Text) String() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return string(x.text)
}

// Line returns the next line that no Line has returned. It waits for its end, until timeout, or until End.
func (x *Text) Line(timeout <-chan time.Time) (line string, ok bool) {
	for {
		line, ok, changed := x.next()
		if ok || changed == nil {
			return line, ok
		}
		select {
		case <-changed:
		case <-timeout:
			return "", false
		}
	}
}

// next returns changed if there is no next line yet.
func (x *Text) next() (line string, ok bool, changed <-chan struct{}) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if n := bytes.IndexByte(x.text[x.read:], '\n'); n >= 0 {
		line = string(x.text[x.read : x.read+n])
		x.read += n + 1
		return line, true, nil
	}
	if x.ended {
		return "", false, nil
	}
	if x.changed == nil {
		x.changed = make(chan struct{})
	}
	return "", false, x.changed
}

// Unread counts the lines that no Line has returned.
func (x *Text) Unread() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return bytes.Count(x.text[x.read:], []byte("\n"))
}

// Count counts the lines that contain all the words.
func (x *Text) Count(words ...string) (lines int) {
	for line := range strings.Lines(x.String()) {
		has := true
		for _, word := range words {
			has = has && strings.Contains(line, word)
		}
		if has {
			lines++
		}
	}
	return lines
}

// Logger returns a logger that writes to the text.
func (x *Text) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(x, nil)) }
