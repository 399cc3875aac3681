package leadercmd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	lockslog "github.com/pglatch/pglatch/observe/slog"
)

// An interval is the time of one term's work on one node, according to its log.
type interval struct {
	Election     string     `json:"-"`
	Identity     string     `json:"identity"`
	Term         string     `json:"term"`
	FencingToken uint64     `json:"fencing_token,omitempty"`
	Began        time.Time  `json:"began"`
	Ended        *time.Time `json:"ended,omitempty"` // nil = not in the log
	clock        string
	lasted       time.Duration // by the monotonic clock
}

func (i *interval) String() string {
	text := fmt.Sprintf("%s in term %s, %s to ", i.Identity, i.Term, i.Began.Format(time.RFC3339Nano))
	if i.Ended == nil {
		return text + "an end that no file has"
	}
	return text + i.Ended.Format(time.RFC3339Nano)
}

// A record is a line of a log in the format of slog's JSONHandler.
type record struct {
	Msg          string        `json:"msg"`
	Election     string        `json:"election"`
	Identity     string        `json:"identity"`
	Term         string        `json:"term"`
	FencingToken uint64        `json:"fencing_token"`
	Clock        string        `json:"clock"`
	Began        time.Time     `json:"began"`
	Ended        *time.Time    `json:"ended"`
	Lasted       time.Duration `json:"lasted"`
}

// maxLine bounds the length of lines.
const maxLine = 1 << 20

// readIntervals reads the records of work in a log. It skips other lines, of whatever program.
func readIntervals(r io.Reader) (all []*interval, err error) {
	type begin struct {
		election, identity, term string
		began                    int64
	}
	open := make(map[begin]*interval)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		line := lines.Bytes()
		if !bytes.Contains(line, []byte(`"`+lockslog.WorkBegan+`"`)) && !bytes.Contains(line, []byte(`"`+lockslog.WorkEnded+`"`)) {
			continue
		}
		var v record
		switch err := json.Unmarshal(line, &v); {
		case err != nil:
			return nil, fmt.Errorf("line %d: %w", n, err)
		case v.Msg != lockslog.WorkBegan && v.Msg != lockslog.WorkEnded:
			continue
		case v.Election == "" || v.Identity == "" || v.Term == "" || v.Began.IsZero() || v.Msg == lockslog.WorkEnded && (v.Ended == nil || v.Ended.IsZero()):
			return nil, fmt.Errorf("line %d: a record of work needs election, identity, term, began and, if it ended, ended", n)
		}
		of := begin{v.Election, v.Identity, v.Term, v.Began.UnixNano()}
		i := open[of]
		if i == nil { // also an end whose begin is in a rotated file
			i = &interval{Election: v.Election, Identity: v.Identity, Term: v.Term, FencingToken: v.FencingToken, Began: v.Began, clock: v.Clock}
			all = append(all, i)
			open[of] = i
		}
		if v.Msg == lockslog.WorkEnded {
			i.Ended, i.lasted = v.Ended, v.Lasted
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return nil, fmt.Errorf("a line is longer than %d bytes", maxLine)
	}
	return all, lines.Err()
}
