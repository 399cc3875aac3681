// Package tally writes down what tests count, for make report: operations, faults with the windows that were measured, and what
// controls found. Without PGLATCH_REPORT its functions do nothing.
package tally

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

// Variable names the file. Each line of it is a Line.
const Variable = "PGLATCH_REPORT"

// A Line is one thing that a test counted.
type Line struct {
	Package string `json:"package"`
	Test    string `json:"test"`
	Count   string `json:"count,omitempty"` // what N counts
	N       int    `json:"n,omitempty"`
	Fault   *Fault `json:"fault,omitempty"`
	Control string `json:"control,omitempty"` // what was found without the protection
}

// A Fault is one kind of fault, and the longest windows that followed one.
type Fault struct {
	Name    string         `json:"name"`
	Times   int            `json:"times"`
	Freed   time.Duration  `json:"freed,omitempty"`   // until somebody held, led or owned again; 0 = not measured
	Bound   time.Duration  `json:"bound,omitempty"`   // of Freed
	Overlap *time.Duration `json:"overlap,omitempty"` // for which a holder went on beside the next one; nil = not measured
}

// Count reports that a test has counted n more of something.
func Count(tb testing.TB, what string, n int) {
	tb.Helper()
	write(tb, Line{Count: what, N: n})
}

// Faults reports the faults of one kind.
func Faults(tb testing.TB, f Fault) {
	tb.Helper()
	write(tb, Line{Fault: &f})
}

// Control reports what a control found, which was a test of the protection.
func Control(tb testing.TB, format string, args ...any) {
	tb.Helper()
	write(tb, Line{Control: fmt.Sprintf(format, args...)})
}

func write(tb testing.TB, l Line) {
	tb.Helper()
	name := os.Getenv(Variable)
	if name == "" {
		return
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		l.Package = strings.TrimSuffix(info.Path, ".test")
	}
	l.Test = tb.Name()
	if err := appendTo(name, l); err != nil {
		tb.Errorf("%s: %v", Variable, err)
	}
}

// appendTo adds a line in one write: several processes may append to the file.
func appendTo(name string, l Line) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := file.Write(append(text, '\n')); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

// Read returns the lines of a file.
func Read(r io.Reader) (lines []Line, err error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	for line := range bytes.Lines(text) {
		var l Line
		if err := json.Unmarshal(line, &l); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		lines = append(lines, l)
	}
	return lines, nil
}
