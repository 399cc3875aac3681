package clientgolock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/pglatch/pglatch/internal/identity"
	"github.com/pglatch/pglatch/internal/resend"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/lease"
)

// ErrLost means that the lease of this leadership is over, and that the elector has not stopped yet.
var ErrLost = errors.New("clientgolock: lease lost; it can be acquired again when the elector has stopped leading")

// resource names the subject of a conflict, in errors of the Kubernetes API's form.
var resource = schema.GroupResource{Group: "lease.pglatch", Resource: "leases"}

// A Config names an election and one of its candidates.
type Config struct {
	// Name is the lease's name; see lease.ValidateName. All candidates use the same.
	Name string

	// Identity is the name of this candidate in the record. "" = host name and a random part,
	// new for each Lock.
	Identity string
}

// A Lock is a resourcelock.Interface on a lease. Only one elector may use it at a time. Token, Identity and
// Describe are safe for concurrent use.
type Lock struct {
	store  leased.Store
	config Config

	lease   resend.Lease
	token   atomic.Uint64 // of the lease; 0 = this candidate has none
	seen    *lease.Record // what the last Get returned; nil = nothing
	leading bool          // from "became leader" to "stopped leading"
	lost    bool          // the lease ended while leading
}

var _ resourcelock.Interface = (*Lock)(nil)

// New returns a Lock on a store: any lease.Store, or a *leasehttp.Client. The caller still owns the store,
// and New sends no request to it. Errors: *lease.InvalidError.
func New(store leased.Store, config Config) (*Lock, error) {
	if store == nil {
		return nil, &lease.InvalidError{Field: "store", Value: "nil", Remedy: "pass a lease.Store or a *leasehttp.Client"}
	}
	if err := lease.ValidateName(config.Name); err != nil {
		return nil, err
	}
	if config.Identity == "" {
		config.Identity = identity.Random()
	}
	check := lease.AcquireRequest{Name: config.Name, Holder: config.Identity, TTL: time.Second}
	if err := check.Validate(); err != nil {
		return nil, err
	}
	return &Lock{store: store, config: config}, nil
}

// Identity returns the candidate's name.
func (l *Lock) Identity() string { return l.config.Identity }

// Describe returns the lease's name.
func (l *Lock) Describe() string { return l.config.Name }

// Token returns the fencing token of the lease that this candidate last got. It is 0 if the candidate has
// none or knows that it ended.
func (l *Lock) Token() uint64 { return l.token.Load() }

// RecordEvent receives the elector's "became leader" and "stopped leading". It ignores other events.
func (l *Lock) RecordEvent(event string) {
	switch event {
	case "became leader":
		l.leading, l.lost = true, false
	case "stopped leading":
		l.leading, l.lost = false, false
	}
}

// Get returns the record of the lease, and bytes that differ after each change of it. The holder is empty if
// the lease was released or has expired. The error matches apierrors.IsNotFound if the store does not know
// the lease. It is ErrLost if this candidate's lease was lost. Any other error comes from the store.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.seen = nil
	found, err := l.store.Get(ctx, l.config.Name)
	if err != nil && !errors.Is(err, lease.ErrNotFound) {
		return nil, nil, fmt.Errorf("clientgolock: %w", err)
	}
	if l.lease.Held() != nil && (err != nil || !l.has(found)) {
		l.over()
	}
	switch {
	case l.lost:
		return nil, nil, ErrLost
	case err != nil:
		return nil, nil, apierrors.NewNotFound(resource, l.config.Name)
	}
	record := l.record(found)
	raw, err := json.Marshal(struct {
		*resourcelock.LeaderElectionRecord
		ID      string
		Version uint64
	}{record, found.ID, found.Version})
	if err != nil {
		return nil, nil, fmt.Errorf("clientgolock: %w", err)
	}
	l.seen = &found
	return record, raw, nil
}

// Create acquires the lease of a name that the store does not know. The error matches
// apierrors.IsAlreadyExists if another candidate has it.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	switch err := l.acquire(ctx, record); {
	case errors.Is(err, lease.ErrHeld):
		return apierrors.NewAlreadyExists(resource, l.config.Name)
	case err != nil:
		return fmt.Errorf("clientgolock: %w", err)
	}
	return nil
}

// Update renews the lease of this candidate, or takes over a lease that was free at the last Get. If the
// record names no holder, Update releases the lease. The error matches apierrors.IsConflict if another
// candidate has, or had, the lease since; then nothing has changed. Releasing a lease that is over returns
// a *lease.StaleError instead of a conflict, because client-go would repeat the release after a conflict.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := l.update(ctx, record)
	switch {
	case err == nil || errors.Is(err, ErrLost):
		return err
	case record.HolderIdentity != "" && (lease.IsOver(err) || errors.Is(err, lease.ErrHeld)):
		return apierrors.NewConflict(resource, l.config.Name, err)
	}
	return fmt.Errorf("clientgolock: %w", err)
}

func (l *Lock) update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	switch {
	case record.HolderIdentity == "":
		return l.release(ctx)
	case l.lost:
		return ErrLost
	case l.lease.Held() != nil:
		return l.renew(ctx, record)
	case l.seen == nil:
		return errors.New("there is nothing to update: call Get first")
	case !l.lease.Unknown(): // otherwise the store knows the request, if it has arrived
		found, err := l.store.Get(ctx, l.config.Name)
		if err != nil {
			return err
		}
		if found.Version != l.seen.Version {
			return &lease.StaleError{Name: l.config.Name, ID: found.ID != l.seen.ID, Token: found.Token != l.seen.Token}
		}
	}
	return l.acquire(ctx, record)
}
