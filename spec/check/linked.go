package check

import (
	"time"
	_ "unsafe" // for go:linkname

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/lease"
	_ "github.com/pglatch/pglatch/lease/postgres" // links the rules of leases
)

// The functions and types of this file are those of package leader and of the rules of leases. Production exports nothing
// that only tests use, so they are linked by their names. TestLinkedTypesAreThoseOfTheMachines compares the types.

// A row is leader.row, one transition of the machine of an elector.
type row struct {
	from    leader.State
	input   uint8 //nolint:unused // part of the layout
	when    condition
	to      uint8    //nolint:unused // part of the layout
	actions []action //nolint:unused // part of the layout
}

type (
	action    uint8
	condition uint8
)

// The actions that observers see, by their names in package leader.
const (
	emitAcquired      action = 8
	emitRecovered     action = 9
	emitReleased      action = 10
	emitLost          action = 11
	emitAcquireFailed action = 12
	emitError         action = 13
	emitStopped       action = 14
)

// A position is leader.position.
type position struct {
	State    leader.State
	Stopping bool
}

// A ruling is leader.rules.
type ruling struct{ grace, reacquire bool }

// A transition is leader.transition.
type transition struct {
	known   bool //nolint:unused // part of the layout
	to      position
	actions []action
}

//go:linkname leaderTable github.com/pglatch/pglatch/leader.table
var leaderTable []row

//go:linkname leaderHolds github.com/pglatch/pglatch/leader.condition.holds
func leaderHolds(c condition, r ruling) bool

//go:linkname leaderResolve github.com/pglatch/pglatch/leader.row.resolve
func leaderResolve(of row, r ruling, stopping bool) transition

// A leaseRow is rules.Row, the stored state of a name.
type leaseRow struct {
	lease.Claim
	IdempotencyKey string
	Metadata       map[string]string
	AcquiredAt     time.Time
	ExpiresAt      time.Time
	ReleasedAt     time.Time
	LockDelay      time.Duration
	MinHold        time.Duration
	MaxLifetime    time.Duration
	Cleared        bool
	Uncounted      int
	LastRelease    string
	Version        uint64
}

//go:linkname ruleAcquire github.com/pglatch/pglatch/lease/internal/rules.Acquire
func ruleAcquire(of leaseRow, floor uint64, now time.Time, r lease.AcquireRequest, id string) (leaseRow, lease.Lease, error)

//go:linkname ruleRenew github.com/pglatch/pglatch/lease/internal/rules.Renew
func ruleRenew(of leaseRow, now time.Time, r lease.RenewRequest) (leaseRow, lease.Lease, error)

//go:linkname ruleRelease github.com/pglatch/pglatch/lease/internal/rules.Release
func ruleRelease(of leaseRow, now time.Time, r lease.ReleaseRequest) (leaseRow, error)
