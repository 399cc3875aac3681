package check

import (
	"fmt"
	"regexp"

	"github.com/pglatch/pglatch/internal/test/trace"
)

// LockStory replays lines that spec/session.pml printed, from a random walk or from a counter-example. Each line that a caller
// or the test would see becomes an event, and Locks judges the run.
func LockStory(lines []string) error {
	var s lockStory
	for i, line := range lines {
		if err := s.tell(i, line); err != nil {
			return err
		}
	}
	return Locks(s.run)
}

// A lockStory is the run that a story tells. A model's client is a process with one caller.
type lockStory struct {
	run   []trace.Event
	phase map[string]trace.Kind
}

// The lines of clients, and those that the events of a run do not show.
var (
	clientLine = regexp.MustCompile(`^client (\d+): (.*)$`)
	faultLine  = regexp.MustCompile(`^fault: (SIGSTOP for|the network of|the session of|pg_cancel_backend for) client (\d+)(?: goes silent| is terminated)?$`)
	goesOn     = regexp.MustCompile(`^fault: client (\d+) continues$`)
	hidden     = regexp.MustCompile(`^(server: (session \d+|the wait|a cancel request)|clock: a tick)`)
	tells      = []struct {
		line *regexp.Regexp
		kind trace.Kind
	}{
		{regexp.MustCompile(`^tries$`), trace.Ask},
		{regexp.MustCompile(`^has the lock, until its deadline in \d+$`), trace.Acquired},
		{regexp.MustCompile(`^releases$`), trace.Release},
		{regexp.MustCompile(`^has no lock, and keeps its session$`), trace.Released},
		{regexp.MustCompile(`^gives its session up in phase [A-Z_]+, deadline in \d+$`), trace.Lost},
		{regexp.MustCompile(`^(connects|waits|pings|its deadline is in \d+|asks whether .*|gives up, and .*|no longer wants .*|gives back .*)$`), ""},
	}
)

func (s *lockStory) tell(i int, line string) error {
	if words := faultLine.FindStringSubmatch(line); words != nil {
		s.emit(i, trace.Event{Kind: trace.Fault, Who: words[2], Text: words[1], To: trace.Begins})
		return nil
	}
	if words := goesOn.FindStringSubmatch(line); words != nil || hidden.MatchString(line) {
		return nil // its deadline passed meanwhile: what the stop does comes later
	}
	words := clientLine.FindStringSubmatch(line)
	if words != nil {
		for _, t := range tells {
			if t.line.MatchString(words[2]) {
				s.client(i, words[1], t.kind)
				return nil
			}
		}
	}
	return fmt.Errorf("line %d, %q: the model does not print this", i+1, line)
}

// client adds the event of a client, if its caller sees one.
func (s *lockStory) client(i int, process string, kind trace.Kind) {
	if s.phase == nil {
		s.phase = make(map[string]trace.Kind)
	}
	switch was := s.phase[process]; {
	case kind == "":
		return
	case was == "" && kind == trace.Lost: // without a caller
		return
	case was == trace.Ask && (kind == trace.Lost || kind == trace.Released):
		kind = trace.Refused
	}
	if s.phase[process] = kind; kind == trace.Lost || kind == trace.Released || kind == trace.Refused {
		s.phase[process] = ""
	}
	s.emit(i, trace.Event{Process: process, Kind: kind, Key: "lock"})
}

func (s *lockStory) emit(i int, e trace.Event) {
	e.Boot = int64(i + 1)
	s.run = append(s.run, e)
}
