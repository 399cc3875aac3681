package pgserver

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// LogPath is the file with everything that the server writes to its log. Close removes it.
func (s *Server) LogPath() string { return filepath.Join(s.dir, "server.log") }

// LogOffset is the current length of the log in bytes.
func (s *Server) LogOffset() (int64, error) {
	info, err := os.Stat(s.LogPath())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// LogSince returns the log after offset, an earlier LogOffset. Each line that a client caused has
// "user@database/application_name" after the time and the process id.
func (s *Server) LogSince(offset int64) (string, error) {
	f, err := os.Open(s.LogPath())
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // opened for reading
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return "", err
	}
	text, err := io.ReadAll(f)
	return string(text), err
}
