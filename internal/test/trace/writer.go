package trace

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// ending is the end of the names of files of one process.
const ending = ".jsonl"

// A Writer writes the events of one process. Each is written at once, so that a process that is killed loses none that it
// has emitted. All methods are safe for concurrent use.
type Writer struct {
	process string

	mu   sync.Mutex
	file *os.File
	last uint64
	err  error
}

// Open opens the file of a process in the directory of a run. An empty dir returns a nil Writer, which writes nothing.
// Processes of one run must have different names.
func Open(dir, process string) (*Writer, error) {
	if dir == "" {
		return nil, nil
	}
	file, err := os.OpenFile(filepath.Join(dir, process+ending), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	return &Writer{process: process, file: file}, nil
}

// Emit adds an event, with the process, the sequence and both clocks.
func (w *Writer) Emit(e Event) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	e.Process, e.Seq, e.Wall, e.Boot = w.process, w.last, time.Now().UnixNano(), Now()
	line, err := json.Marshal(e)
	if err == nil {
		_, err = w.file.Write(append(line, '\n'))
	}
	w.err = cmp.Or(w.err, err)
}

// Close closes the file, and returns the first error of the Writer.
func (w *Writer) Close() error {
	if w == nil {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.err, w.file.Close())
}

// Read returns the events of all processes of a run, in the order of the shared clock. It fails if a process has a gap in
// its sequence: then the writer is broken, and not the run.
func Read(dir string) (all []Event, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+ending))
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		events, err := readFile(name)
		if err != nil {
			return nil, err
		}
		for i, e := range events {
			if e.Seq != uint64(i+1) {
				return nil, fmt.Errorf("%s: event %d has the sequence %d", filepath.Base(name), i+1, e.Seq)
			}
		}
		all = append(all, events...)
	}
	slices.SortStableFunc(all, func(a, b Event) int { return cmp.Compare(a.Boot, b.Boot) })
	return all, nil
}

func readFile(name string) ([]Event, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	events, err := Decode(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return events, nil
}

// Decode reads events. A process can be killed while it writes: the rest of a last line without its end is ignored.
func Decode(r io.Reader) (events []Event, err error) {
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return events, nil
		}
		if err != nil {
			return nil, err
		}
		var e Event
		if err := json.Unmarshal([]byte(strings.TrimSpace(line)), &e); err != nil {
			return nil, fmt.Errorf("line %d: %w", len(events)+1, err)
		}
		events = append(events, e)
	}
}

// Encode writes events.
func Encode(w io.Writer, events []Event) error {
	out := json.NewEncoder(w)
	for _, e := range events {
		if err := out.Encode(e); err != nil {
			return err
		}
	}
	return nil
}
