package leasecmd

import (
	"fmt"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/lease/shared"
)

// A sharing is the flags for a lock that several can hold.
type sharing struct {
	slots             int
	shared, exclusive bool
}

func (s *sharing) addFlags(f *pflag.FlagSet) {
	f.IntVar(&s.slots, "slots", 0, "take one of `n` slots of the lock, which n may have at once")
	f.BoolVar(&s.shared, "shared", false, "share the lock with other readers")
	f.BoolVar(&s.exclusive, "exclusive", false, "take the whole lock, while nobody shares it or has a slot; without --shared, --slots and --exclusive, the lease is of another lock")
}

// share returns the requested share; errors are usage errors.
func (s *sharing) share(f *pflag.FlagSet) (lockserver.Share, error) {
	given := 0
	for _, name := range []string{"slots", "shared", "exclusive"} {
		if f.Changed(name) {
			given++
		}
	}
	switch {
	case given > 1:
		return lockserver.Share{}, program.UsageError("give one of --slots, --shared and --exclusive")
	case f.Changed("slots") && (s.slots < 1 || s.slots > shared.MaxSlots):
		return lockserver.Share{}, program.UsageError("--slots is %d: use 1 to %d", s.slots, shared.MaxSlots)
	}
	return lockserver.Share{Slots: s.slots, Shared: s.shared, Exclusive: s.exclusive}, nil
}

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
