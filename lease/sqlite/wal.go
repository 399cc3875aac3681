package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// settle makes the WAL that another process left survive a power failure, before anything is
// decided on it. Commits may be in it that were never synced, or whose sync failed. Then the system
// may have marked the data as written, and another sync would find nothing to do. So settle writes
// it again, while no other connection writes. SQLite has no POSIX locks on the WAL, so closing it
// ends none.
func (w *writer) settle(c *conn) error {
	if err := c.exec(c.begin); err != nil {
		return err
	}
	err := rewrite(w.path+"-wal", w.sync)
	if err != nil {
		err = &FileError{Op: "sync", Path: w.path, Condition: ErrIO, Cause: err}
	}
	return errors.Join(err, c.exec(c.rollback))
}

func rewrite(path string, sync func(*os.File) error) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(f)
	if err == nil {
		_, err = f.WriteAt(text, 0)
	}
	if err == nil {
		err = sync(f)
	}
	return errors.Join(err, f.Close())
}

// The sizes of the header of a WAL, and of the header of each frame.
const (
	walHead   = 32
	frameHead = 24
)

// walProblem returns what is wrong with the WAL that a killed process left at this path; "" if it
// finds nothing. The last frame may be half written, as after a kill. A WAL that was cut at the end
// of a frame cannot be distinguished from one that ends there.
func walProblem(path string) string {
	text, err := os.ReadFile(path)
	sum, whole := sumHead(text)
	switch {
	case os.IsNotExist(err):
		return "it is gone"
	case err != nil:
		return "it cannot be read: " + err.Error()
	case len(text) < walHead:
		return "it is empty or cut"
	case !whole:
		return "its header is damaged"
	}
	size := frameHead + int(binary.BigEndian.Uint32(text[8:]))
	frames := sum.countFrames(text, size)
	for at := walHead + (frames+1)*size; at+size <= len(text); at += size {
		if string(text[at+8:at+16]) == string(text[16:24]) { // else it is of an earlier use of the file
			return fmt.Sprintf("frame %d is damaged, and not the last", frames+1)
		}
	}
	return ""
}

// A walSum is the running checksum of a WAL: https://www.sqlite.org/fileformat2.html#walformat.
type walSum struct {
	order  binary.ByteOrder
	s0, s1 uint32
}

// sumHead returns the checksum of the WAL's header; false if it is not complete.
func sumHead(text []byte) (walSum, bool) {
	if len(text) < walHead {
		return walSum{}, false
	}
	var order binary.ByteOrder = binary.LittleEndian
	if binary.BigEndian.Uint32(text)&1 == 1 {
		order = binary.BigEndian
	}
	sum := walSum{order: order}
	sum.add(text[:24])
	return sum, sum.is(text[24:])
}

// countFrames returns how many frames of this size, after the header, are complete.
func (s walSum) countFrames(text []byte, size int) int {
	n := 0
	for frame := text[walHead:]; len(frame) >= size; frame = frame[size:] {
		s.add(frame[:8])
		s.add(frame[frameHead:size])
		if string(frame[8:16]) != string(text[16:24]) || !s.is(frame[16:]) {
			break
		}
		n++
	}
	return n
}

func (s *walSum) add(text []byte) {
	for ; len(text) >= 8; text = text[8:] {
		s.s0 += s.order.Uint32(text) + s.s1
		s.s1 += s.order.Uint32(text[4:]) + s.s0
	}
}

func (s *walSum) is(stored []byte) bool {
	return binary.BigEndian.Uint32(stored) == s.s0 && binary.BigEndian.Uint32(stored[4:]) == s.s1
}
