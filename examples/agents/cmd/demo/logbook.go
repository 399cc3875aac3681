package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"sync"
)

// A logbook is the JSON log of a replica, to be waited for.
type logbook struct {
	mu    sync.Mutex
	text  bytes.Buffer
	grown chan struct{} // closed and replaced when text grows
}

func newLogbook() *logbook { return &logbook{grown: make(chan struct{})} }

// Write appends what the replica wrote.
func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.grown)
	l.grown = make(chan struct{})
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// tail is the last 20 lines.
func (l *logbook) tail() string {
	lines := strings.SplitAfter(l.String(), "\n")
	return strings.Join(lines[max(0, len(lines)-21):], "")
}

// An entry is one line of a logbook.
type entry struct {
	Message string `json:"msg"`
	Worker  string `json:"worker"`
	AgentID int32  `json:"agent_id"`
}

// size is where the entries to come begin.
func (l *logbook) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Len()
}

// await returns the first entry after the size that matches, when it has come.
func (l *logbook) await(ctx context.Context, size int, match func(entry) bool) (entry, error) {
	for {
		l.mu.Lock()
		text, grown := bytes.Clone(l.text.Bytes()[size:]), l.grown
		l.mu.Unlock()
		for line := range bytes.Lines(text) {
			var e entry
			if json.Unmarshal(line, &e) == nil && match(e) {
				return e, nil
			}
		}
		select {
		case <-ctx.Done():
			return entry{}, context.Cause(ctx)
		case <-grown:
		}
	}
}
