package shared

import (
	"fmt"
	"strings"

	"github.com/pglatch/pglatch/lease"
)

// MaxSlots is the maximum number of slots of a lock.
const MaxSlots = 1000

// infix and digits make the names of a lock's leases, such as job::slot::0002. Their length is
// fixed, so that they sort in the order of their numbers.
const (
	infix  = "::slot"
	digits = 4
)

// SlotName returns the name of the lease for a slot of a lock, 1 to MaxSlots. Slot 0 is the gate:
// the exclusive holder of the gate has the whole lock.
func SlotName(lock string, slot int) string {
	return fmt.Sprintf("%s%s::%0*d", lock, infix, digits, slot)
}

// ParseName is the inverse of SlotName. ok is false if name is not the name of a slot.
func ParseName(name string) (lock string, slot int, ok bool) {
	at := len(name) - len(infix) - len("::") - digits
	if at < 1 || name[at:len(name)-digits] != infix+"::" {
		return "", 0, false
	}
	for _, c := range []byte(name[len(name)-digits:]) {
		if c < '0' || c > '9' {
			return "", 0, false
		}
		slot = 10*slot + int(c-'0')
	}
	return name[:at], slot, slot <= MaxSlots
}

// IsReserved reports whether a name is the name of a slot, or could be mistaken for one. A
// program that uses shared locks must not lease such a name in any other way: that lease would be
// a slot that bypasses the gate.
func IsReserved(name string) bool {
	_, _, ok := ParseName(name)
	return ok || strings.HasSuffix(name, infix)
}

// Prefix returns the prefix of the names of all leases of a lock, to list the holders of its slots.
func Prefix(lock string) string { return lock + infix + "::" }

// validateLock refuses names whose slot names would be invalid.
func validateLock(name string) error {
	if err := lease.ValidateName(name); err != nil {
		return err
	}
	if IsReserved(name) {
		return &lease.InvalidError{Field: "Name", Value: fmt.Sprintf("%q", name), Remedy: "give the name of the lock, without the slot"}
	}
	if longest := lease.MaxName - len(infix) - len("::") - digits; len(name) > longest {
		return &lease.InvalidError{Field: "Name", Value: fmt.Sprintf("%d bytes", len(name)), Remedy: fmt.Sprintf("use at most %d for a shared lock", longest)}
	}
	return nil
}
