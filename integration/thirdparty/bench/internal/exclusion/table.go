// Package exclusion detects two holders of one lock, also in different processes.
package exclusion

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// ErrTwoHolders reports that two holders had the same key at once.
var ErrTwoHolders = errors.New("TWO HOLDERS of one key")

const slots = 1 << 14

// A Table records the current holders in memory shared by all processes that opened its
// file. It costs two atomic operations per lock. A holder whose slot is taken by another
// key is not checked: with 512 holders of random keys, that is one in 32.
type Table struct {
	memory []byte
	slots  *[slots]atomic.Uint32 // key + 1 of the holder; 0 = none
}

// Create creates the file of a table, for Open.
func Create(path string) error {
	return os.WriteFile(path, make([]byte, slots*4), 0o600)
}

// Open maps the file of a table. The caller must Close it.
func Open(path string) (*Table, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // the mapping outlives it
	memory, err := syscall.Mmap(int(f.Fd()), 0, slots*4, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("exclusion: map %s: %w", path, err)
	}
	return &Table{memory, (*[slots]atomic.Uint32)(unsafe.Pointer(&memory[0]))}, nil
}

// Close unmaps the table.
func (t *Table) Close() error { return syscall.Munmap(t.memory) }

// Enter records a holder of key, which must be below 2³² - 1. The holder must call it first.
// noted reports whether the holder must call Leave. The error is ErrTwoHolders.
func (t *Table) Enter(key uint32) (noted bool, err error) {
	slot := t.slot(key)
	if slot.CompareAndSwap(0, key+1) {
		return true, nil
	}
	if slot.Load() == key+1 {
		return false, fmt.Errorf("%w (%d)", ErrTwoHolders, key)
	}
	return false, nil
}

// Leave removes a noted holder, as its last action. The error is ErrTwoHolders.
func (t *Table) Leave(key uint32) error {
	if !t.slot(key).CompareAndSwap(key+1, 0) {
		return fmt.Errorf("%w (%d)", ErrTwoHolders, key)
	}
	return nil
}

func (t *Table) slot(key uint32) *atomic.Uint32 { return &t.slots[key%slots] }
