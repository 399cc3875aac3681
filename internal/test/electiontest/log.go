//go:build linux

package electiontest

import (
	"fmt"
	"strings"
	"sync"

	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
)

// A log is the output of a node's processes.
type log struct {
	mu      sync.Mutex
	changed chan struct{}
	said    map[string]int // number of lines by first word
	ended   bool

	events  judge.Events
	failure string // the last error
	faulty  []string
	counts  map[string]int
}

func newLog() *log {
	return &log{said: make(map[string]int), counts: make(map[string]int), changed: make(chan struct{})}
}

func (l *log) restart() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events.Leads, l.ended = false, false
}

func (l *log) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.notifyLocked()
}

func (l *log) notifyLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// add adds a line, and checks the order of events.
func (l *log) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	word, rest, _ := strings.Cut(line, " ")
	l.said[word]++
	if wrong := l.checkLocked(word, rest); wrong != "" {
		l.faulty = append(l.faulty, fmt.Sprintf("%s, after term %v: %s", line, l.events.Term, wrong))
	}
	l.notifyLocked()
}

// checkLocked returns what is wrong with a line.
func (l *log) checkLocked(word, rest string) (wrong string) {
	switch word {
	case "acquired", "recovered", "released", "lost":
		term := l.events.Term // if the line has none
		if text, _, _ := strings.Cut(rest, " "); text != "" {
			var err error
			if term, err = driver.ParseTerm(text); err != nil {
				return err.Error()
			}
		}
		return l.events.See(word, term)
	case "stopped":
		return l.events.See(word, leader.Term{})
	case "count":
		var name string
		var n int
		if _, err := fmt.Sscan(rest, &name, &n); err != nil {
			return err.Error()
		}
		l.counts[name] += n
	case "error":
		l.failure = rest
	case "follows":
	default: // a failure, a panic, or a data race
		return "?"
	}
	return ""
}
