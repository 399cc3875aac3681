package clientgolock

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/pglatch/pglatch/lease"
)

// metadataKey is the key under which a lease stores the record that client-go acquired it with.
const metadataKey = "leaderElectionRecord"

// acquire acquires the lease, if it is free, for the duration in the record. If the outcome of an
// earlier try is unknown, acquire repeats the same request, and gets the same lease.
func (l *Lock) acquire(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	got, err := l.store.Acquire(ctx, l.lease.Request(lease.AcquireRequest{
		Name: l.config.Name, Holder: l.config.Identity, TTL: ttl(record), Metadata: map[string]string{metadataKey: string(text)},
	}))
	l.lease.Answered(got, err)
	if err != nil {
		return err
	}
	l.seen = nil
	l.token.Store(got.Token)
	if got.Remaining < ttl(record) { // an earlier try got it
		return l.renew(ctx, record)
	}
	return nil
}

func (l *Lock) renew(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	_, err := l.lease.Renew(ctx, l.store, ttl(record))
	if lease.IsOver(err) {
		l.over()
	}
	return err
}

func (l *Lock) release(ctx context.Context) error {
	if l.lease.Held() == nil {
		return &lease.StaleError{Name: l.config.Name, ID: true, Token: true}
	}
	err := l.lease.Release(ctx, l.store)
	if l.lease.Held() == nil {
		l.token.Store(0)
	}
	return err
}

// has reports whether a lease is the one that this candidate has.
func (l *Lock) has(found lease.Record) bool {
	held := l.lease.Held()
	return held != nil && found.State == lease.Held && found.Claim == *held
}

// over notes that the lease of this candidate ended before it was released.
func (l *Lock) over() {
	l.lease.Forget()
	l.token.Store(0)
	l.lost = l.leading
}

func ttl(record resourcelock.LeaderElectionRecord) time.Duration {
	return time.Duration(record.LeaseDurationSeconds) * time.Second
}

// record returns client-go's view of a lease.
func (l *Lock) record(found lease.Record) *resourcelock.LeaderElectionRecord {
	var record resourcelock.LeaderElectionRecord
	if json.Unmarshal([]byte(found.Metadata[metadataKey]), &record) != nil || record.LeaseDurationSeconds == 0 {
		// Not acquired by client-go: it ends when the store says so.
		record = resourcelock.LeaderElectionRecord{LeaseDurationSeconds: int((found.Remaining + time.Second - 1) / time.Second)}
	}
	record.AcquireTime = metav1.NewTime(found.AcquiredAt)
	record.RenewTime = metav1.NewTime(found.ExpiresAt.Add(-ttl(record)))
	switch {
	case found.State != lease.Held:
		record.HolderIdentity, record.LeaseDurationSeconds = "", 1
	case found.Holder == l.config.Identity && !l.lease.Unknown() && !l.has(found):
		// Held by another process, or by this one before a restart: not this candidate.
		record.HolderIdentity = fmt.Sprintf("%s (token %d)", found.Holder, found.Token)
	default:
		record.HolderIdentity = found.Holder
	}
	return &record
}
