package check

import (
	"fmt"
	"regexp"
	"strconv"

	"github.com/pglatch/pglatch/internal/test/trace"
)

// TurnStory replays lines that spec/turns.pml printed, from a random walk or from a counter-example. Each line that the
// sender, a handler or a commit writes becomes an event, and Turns judges the run.
func TurnStory(lines []string) error {
	s := turnStory{ids: make(map[int64]string), turns: make(map[string]uint64)}
	for i, line := range lines {
		if err := s.tell(i, line); err != nil {
			return err
		}
	}
	return Turns(s.run)
}

// A turnStory is the run that a story tells. The model reuses tokens: here each turn has a greater one.
type turnStory struct {
	run   []trace.Event
	last  uint64
	turns map[string]uint64 // of each server
	ids   map[int64]string  // of each number
}

var (
	numbered = regexp.MustCompile(`^sender \d+: message (\d+) gets number (\d+)$`)
	stored   = regexp.MustCompile(`^sender \d+: message \d+ is committed with number (\d+)$`)
	takes    = regexp.MustCompile(`^server (\d+): turn \d+ takes messages \d+$`)
	ends     = regexp.MustCompile(`^server (\d+): (?:turn \d+ (commits) messages|messages) (\d+)(?: are dead)?$`)
	unseen   = regexp.MustCompile(`^(sender \d+: (has the lock|aborts|sends message \d+ again|message \d+ is known)|` +
		`server \d+: (runs turn|takes more, and has|turn \d+ (fails|is|takes)|finds|the node|joins|its handler|notices|the transaction)|` +
		`store: ends|fault: |user: interrupts|operator: )`)
)

func (s *turnStory) tell(i int, line string) error {
	emit := func(e trace.Event) {
		e.Process, e.Key, e.Boot = "store", "entity", int64(i+1)
		s.run = append(s.run, e)
	}
	if words := numbered.FindStringSubmatch(line); words != nil {
		s.ids[number(words[2])] = words[1]
		return nil
	}
	if words := stored.FindStringSubmatch(line); words != nil {
		n := number(words[1])
		emit(trace.Event{Kind: trace.Sent, Number: n, Text: s.ids[n]})
		return nil
	}
	if words := takes.FindStringSubmatch(line); words != nil {
		s.last++
		s.turns[words[1]] = s.last
		emit(trace.Event{Kind: trace.Turn, Term: s.last})
		return nil
	}
	if words := ends.FindStringSubmatch(line); words != nil {
		kind := trace.Dead
		if words[2] != "" {
			kind = trace.Commit
		}
		for n, set := int64(0), number(words[3]); set>>n != 0; n++ {
			if set>>n&1 != 0 {
				emit(trace.Event{Kind: kind, Term: s.turns[words[1]], Number: n, Text: s.ids[n]})
			}
		}
		return nil
	}
	if !unseen.MatchString(line) {
		return fmt.Errorf("line %d, %q: the model does not print this", i+1, line)
	}
	return nil
}

// number is that of digits.
func number(digits string) int64 {
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}
