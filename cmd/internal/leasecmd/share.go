package leasecmd

import (
	"fmt"
	"strconv"

	"github.com/pglatch/pglatch/lease/shared"
)

// shareVariables returns the environment variables for work under a share of a lock, and none for
// other leases.
func shareVariables(s shared.Share) []string {
	if s.Lock == "" {
		return nil
	}
	return []string{"PGLATCH_FENCE=" + strconv.FormatUint(s.Fence, 10), "PGLATCH_SLOT=" + strconv.Itoa(s.Slot)}
}

// describe describes a share of a lock; "" = an ordinary lease.
func describe(s shared.Share) string {
	switch {
	case s.Lock == "":
		return ""
	case s.Slot == 0:
		return fmt.Sprintf(", the whole lock, fence %d", s.Fence)
	}
	return fmt.Sprintf(", slot %d, fence %d", s.Slot, s.Fence)
}
