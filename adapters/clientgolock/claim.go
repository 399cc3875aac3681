package clientgolock

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
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
	if l.asked == "" {
		l.asked = rand.Text()
	}
	got, err := l.store.Acquire(ctx, lease.AcquireRequest{
		Name: l.config.Name, Holder: l.config.Identity, TTL: ttl(record), IdempotencyKey: l.asked,
		Metadata: map[string]string{metadataKey: string(text)},
	})
	if err != nil {
		l.unsure = !errors.Is(err, lease.ErrHeld) && (l.unsure || !lease.NothingDone(err))
		if !l.unsure {
			l.asked = ""
		}
		return err
	}
	l.asked, l.unsure, l.held, l.seen = "", false, &got.Claim, nil
	l.token.Store(got.Token)
	if got.Remaining < ttl(record) { // an earlier try got it
		return l.renew(ctx, record)
	}
	return nil
}

func (l *Lock) renew(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	_, err := l.store.Renew(ctx, lease.RenewRequest{Claim: *l.held, TTL: ttl(record)})
	if lease.IsOver(err) {
		l.over()
	}
	return err
}

func (l *Lock) release(ctx context.Context) error {
	if l.held == nil {
		return &lease.StaleError{Name: l.config.Name, ID: true, Token: true}
	}
	err := l.store.Release(ctx, *l.held)
	if err == nil || lease.IsOver(err) {
		l.forget()
	}
	return err
}

// over notes that the lease of this candidate ended before it was released.
func (l *Lock) over() {
	l.forget()
	l.lost = l.leading
}

func (l *Lock) forget() {
	l.held = nil
	l.token.Store(0)
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
	case found.Holder == l.config.Identity && l.asked == "" && (l.held == nil || *l.held != found.Claim):
		// Held by another process, or by this one before a restart: not this candidate.
		record.HolderIdentity = fmt.Sprintf("%s (token %d)", found.Holder, found.Token)
	default:
		record.HolderIdentity = found.Holder
	}
	return &record
}
