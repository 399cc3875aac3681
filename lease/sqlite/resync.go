package sqlite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// notSynced keeps readers from data that may not be on the disk, until resync succeeds.
func (w *writer) notSynced(cause error) error {
	w.unsynced = true
	return w.silence(&FileError{Op: opSync, Path: w.path, Condition: ErrIO, Cause: cause})
}

func (w *writer) silence(err error) error {
	w.gate.damage.Store(&err)
	return err
}

// resync recovers from a failed sync. Everything acknowledged before is on the disk. As for later
// commits, the system may have dropped data that it could not write, and may have marked it as
// written. Then another sync would find nothing to do.
func (w *writer) resync() error {
	if !w.unsynced {
		return nil
	}
	if err := w.writeAgain(w.conn); errors.Is(err, errDropped) {
		// The index of the WAL, which other connections share, refers to frames that are not there:
		// a checkpoint would damage the file. Only the end of the process ends the index.
		w.lost = true
		return w.stop(&FileError{Op: opSync, Path: w.path, Condition: ErrIO, Cause: err})
	} else if err != nil {
		return w.silence(err)
	}
	w.unsynced, w.version = false, -1
	w.gate.damage.Store(nil)
	w.logger.Warn("synced_again")
	return nil
}

// writeAgain writes the content of the WAL again and syncs it, while no other connection writes.
func (w *writer) writeAgain(c *conn) error {
	frames := int64(0)
	if err := c.each("PRAGMA wal_checkpoint(NOOP)", 3, func(n []int64) { frames = n[1] }); err != nil {
		return err
	}
	if err := c.exec(c.begin); err != nil {
		return err
	}
	err := c.wal.writeAgain(frames)
	if err == nil {
		err = c.wal.sync()
	}
	if err != nil {
		err = &FileError{Op: opSync, Path: w.path, Condition: ErrIO, Cause: err}
	}
	return errors.Join(err, c.exec(c.rollback))
}

var errDropped = errors.New("the system dropped what it could not write")

// writeAgain writes that many frames, if they are the ones SQLite wrote.
func (w *wal) writeAgain(frames int64) error {
	if frames <= 0 {
		return nil
	}
	head := make([]byte, walHead)
	if _, err := w.file.ReadAt(head, 0); err != nil {
		return err
	}
	size := frames * (frameHead + int64(binary.BigEndian.Uint32(head[8:])))
	text := make([]byte, walHead+size)
	if n, err := w.file.ReadAt(text, 0); errors.Is(err, io.EOF) {
		text = text[:n]
	} else if err != nil {
		return err
	}
	if n := countFrames(text); n < frames {
		return fmt.Errorf("%w: the WAL has %d frames of %d", errDropped, n, frames)
	}
	_, err := w.file.WriteAt(text, 0)
	return err
}

// The sizes of the header of a WAL, and of the header of each frame.
const (
	walHead   = 32
	frameHead = 24
)

// countFrames returns how many frames at the start of a WAL are complete, by their running
// checksums: https://www.sqlite.org/fileformat2.html#walformat.
func countFrames(text []byte) int64 {
	sum, ok := sumHead(text)
	if !ok {
		return 0
	}
	length, n := frameHead+int(binary.BigEndian.Uint32(text[8:])), int64(0)
	for frame := text[walHead:]; len(frame) >= length; frame = frame[length:] {
		sum.add(frame[:8])
		sum.add(frame[frameHead:length])
		if string(frame[8:16]) != string(text[16:24]) || !sum.is(frame[16:]) {
			break
		}
		n++
	}
	return n
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

// A walSum is the checksum of a WAL.
type walSum struct {
	order  binary.ByteOrder
	s0, s1 uint32
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
