package demokit

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"
)

// A Logbook collects the JSON log of a process, and can wait for entries.
type Logbook struct {
	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{} // closed and replaced when text grows
}

func newLogbook() *Logbook { return &Logbook{grown: make(chan struct{})} }

// Write appends what the process wrote.
func (l *Logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.grown)
	l.grown = make(chan struct{})
	return l.text.Write(p)
}

func (l *Logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Tail returns the last 20 lines.
func (l *Logbook) Tail() string {
	lines := strings.SplitAfter(l.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-21):], "")
}

// An Entry is one line of a Logbook.
type Entry struct {
	Time    time.Time `json:"time"`
	Message string    `json:"msg"`
	Service string    `json:"service"`
	Worker  string    `json:"worker"`
	AgentID int32     `json:"agent_id"`
}

// Message matches entries by their message.
func Message(text string) func(Entry) bool {
	return func(e Entry) bool { return e.Message == text }
}

// Size returns the position at which future entries begin.
func (l *Logbook) Size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Len()
}

// Entries returns the matching entries from position size on.
func (l *Logbook) Entries(size int, match func(Entry) bool) (found []Entry) {
	l.mu.Lock()
	text := bytes.Clone(l.text.Bytes()[size:])
	l.mu.Unlock()
	for line := range bytes.Lines(text) {
		var e Entry
		if json.Unmarshal(line, &e) == nil && match(e) {
			found = append(found, e)
		}
	}
	return found
}

// Await waits for a matching entry from position size on, and returns the first.
func (l *Logbook) Await(ctx context.Context, size int, match func(Entry) bool) (Entry, error) {
	for {
		l.mu.Lock()
		grown := l.grown
		l.mu.Unlock()
		if found := l.Entries(size, match); len(found) > 0 {
			return found[0], nil
		}
		select {
		case <-ctx.Done():
			return Entry{}, context.Cause(ctx)
		case <-grown:
		}
	}
}
