// Package leasecmd contains the command lease, for leases of a lock server.
package leasecmd

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/shared"
)

const help = `Take, keep and release leases of a lock server ("pglatch serve locks").

The server is that of --server or PGLATCH_LOCK_SERVER, else http://127.0.0.1:8080. Several
servers that share a store can be given, separated by commas: if one cannot be used, the next
one is. The bearer token is in the file of --auth-token-file, or in PGLATCH_LOCK_TOKEN.

A lease ends when it is released, or when it expires. Its fencing token is greater than those
of all earlier leases of the lock. Send it with every write, and let the resource refuse a
token lower than one that it has seen.

With --slots n a lock has up to n holders at once, with --shared any number, and with
--exclusive one holder that shares it with nobody. The lease is then of a slot: renew and
release it by the name that acquire prints, such as gpu::slot::0002.

Exit codes: 0 success, 3 nobody has the lock (get), 69 the server or its store is unavailable
or too busy, 75 another holder has the lock, 76 the lease is no longer the current one.`

// New returns the command lease.
func New(app *program.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lease",
		Short: "Take, keep and release leases of a lock server",
		Long:  help,
	}
	cmd.AddCommand(newAcquire(app), newRenew(app), newAdopt(app), newRelease(app), newGet(app), newList(app), newRun(app), newForceRelease(app))
	return cmd
}

// LockName returns the single argument of most commands.
func LockName(args []string) (string, error) {
	if len(args) != 1 {
		return "", program.UsageError("give one NAME of a lock")
	}
	if err := lease.ValidateName(args[0]); err != nil {
		return "", program.UsageError("NAME: %w", err)
	}
	return args[0], nil
}

// terms are the flags for acquiring a lease.
type terms struct {
	leasehttp.AcquireOptions
	owner string
}

const defaultLeaseTTL = 15 * time.Second

func (t *terms) addFlags(f *pflag.FlagSet) {
	f.StringVar(&t.owner, "owner", "", "`name` of the owner (default: PGLATCH_LEASE_OWNER, else host name and process id)")
	f.DurationVar(&t.TTL, "ttl", defaultLeaseTTL, "how long the lease lasts unless it is renewed")
	f.StringToStringVar(&t.Metadata, "metadata", nil, "`key=value` that the lease shows to people, repeatable")
	f.DurationVar(&t.LockDelay, "lock-delay", 0, "keep the lock from others for this long if the lease expires")
	f.IntVar(&t.Slots, "slots", 0, "take one of `n` slots of the lock, which n may have at once")
	f.BoolVar(&t.Shared, "shared", false, "share the lock with other readers")
	f.BoolVar(&t.Exclusive, "exclusive", false, "take the whole lock, while nobody shares it or has a slot; without --shared, --slots and --exclusive, the lease is of another lock")
	f.DurationVar(&t.MinHold, "min-hold", 0, "keep the lock from others for this long after the acquisition, even after a release")
}

// check checks the flags for a request for the lock name.
func (t *terms) check(f *pflag.FlagSet, name string) error {
	r := lease.AcquireRequest{
		Name: name, Holder: ownerName(t.owner), TTL: t.TTL, Metadata: t.Metadata, LockDelay: t.LockDelay, MinHold: t.MinHold, IdempotencyKey: t.IdempotencyKey,
	}
	if err := r.Validate(); err != nil {
		return program.UsageError("%w", err)
	}
	given := 0
	for _, flag := range []string{"slots", "shared", "exclusive"} {
		if f.Changed(flag) {
			given++
		}
	}
	switch {
	case given > 1:
		return program.UsageError("give one of --slots, --shared and --exclusive")
	case f.Changed("slots") && (t.Slots < 1 || t.Slots > shared.MaxSlots):
		return program.UsageError("--slots is %d: use 1 to %d", t.Slots, shared.MaxSlots)
	}
	return nil
}

func ownerName(flag string) string {
	if owner := cmp.Or(flag, os.Getenv("PGLATCH_LEASE_OWNER")); owner != "" {
		return owner
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return host + "-" + strconv.Itoa(os.Getppid()) // of the script: acquire, renew and release are separate processes
}

// A document has the field names of the server's own answers.
type document struct {
	Lock           string            `json:"lock"`
	OwnerID        string            `json:"owner_id"`
	LeaseID        string            `json:"lease_id,omitempty"`
	FencingToken   uint64            `json:"fencing_token"`
	AcquiredAt     time.Time         `json:"acquired_at,omitzero"`
	ExpiresAt      time.Time         `json:"expires_at,omitzero"`
	TTLRemainingMS int64             `json:"ttl_remaining_ms"`
	Metadata       map[string]string `json:"metadata,omitempty"`
	ShareOf        string            `json:"share_of,omitempty"`
	Slot           int               `json:"slot,omitempty"`
	Fence          uint64            `json:"fence,omitempty"`
}

func newDocument(l lease.Lease) document {
	lock, slot, _ := shared.ParseName(l.Name)
	return document{l.Name, l.Holder, l.ID, l.Token, l.AcquiredAt.UTC(), l.ExpiresAt.UTC(), l.Remaining.Milliseconds(), l.Metadata, lock, slot, 0}
}

func printLease(app *program.App, verb string, l lease.Lease, s shared.Share) error {
	d := newDocument(l)
	d.Fence = s.Fence
	return app.Print(program.Sentence(d, fmt.Sprintf("%s %s for %v: owner %s, lease id %s, fencing token %d%s",
		verb, program.Printable(l.Name), l.Remaining.Round(time.Millisecond), program.Printable(l.Holder), program.Printable(l.ID), l.Token, describe(s))))
}
