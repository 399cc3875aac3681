package agents

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// transcripts reads the agents' output: the file <session_id>.txt in one directory,
// with one line per answer. A nil *transcripts is empty.
type transcripts struct{ dir *os.Root }

// openTranscripts opens the directory; "" = none. A session's id is untrusted input: whatever
// the name, an os.Root reads no file outside its directory.
func openTranscripts(dir string) (*transcripts, error) {
	if dir == "" {
		return nil, nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("agents: TranscriptDir: %w", err)
	}
	return &transcripts{dir: root}, nil
}

// lines returns the complete lines of an agent's transcript; none if there is no file yet.
func (t *transcripts) lines(a *Agent) ([]string, error) {
	if t == nil {
		return nil, nil
	}
	text, err := t.dir.ReadFile(a.SessionID + ".txt")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("agents: transcript: %w", err)
	}
	lines := strings.Split(string(text), "\n")
	return lines[:len(lines)-1], nil // the last one is not complete: it has no newline yet
}

// answered reports whether the transcript has an answer to the command. Without
// transcripts it reports true.
func (t *transcripts) answered(c *Command, lines []string) bool {
	return t == nil || len(lines) > c.TranscriptFrom
}

func (t *transcripts) close() error {
	if t == nil {
		return nil
	}
	return t.dir.Close()
}
