package leased

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pglatch/pglatch/lease"
)

// operator is the holder of leases that are nobody's in particular: pins, drains and the bell.
const operator = "pglatch-shards"

// Pin leases a name for the longest time that there is. Every member renews it, so it lasts as long as
// there are any, and six hours longer at least. After an error it may have been done; it can be repeated.
func (b *Backend) Pin(ctx context.Context, shard, identity string) error {
	if err := b.order(ctx, b.config.group(ofPin, shard), identity); err != nil {
		return fmt.Errorf("shards: pinning %s of %s: %w", shard, b.config.Name, err)
	}
	return nil
}

// Drain lasts as long as a Pin.
func (b *Backend) Drain(ctx context.Context, identity string, drain bool) error {
	value := ""
	if drain {
		value = identity
	}
	if err := b.order(ctx, b.config.group(ofDrain, identity), value); err != nil {
		return fmt.Errorf("shards: draining %s of %s: %w", identity, b.config.Name, err)
	}
	return nil
}

// order keeps a value by a lease; "" ends that.
func (b *Backend) order(ctx context.Context, name, value string) error {
	err := again(ctx, func() error {
		if value == "" {
			r, err := b.store.Get(ctx, name)
			if errors.Is(err, lease.ErrNotFound) || err == nil && r.State != lease.Held {
				return nil
			}
			if err != nil {
				return err
			}
		}
		// By its key the request gets the lease of an earlier order.
		l, err := b.store.Acquire(ctx, lease.AcquireRequest{Name: name, Holder: operator, TTL: lease.MaxTTL, IdempotencyKey: operator})
		if err != nil {
			return err
		}
		if value == "" {
			return ended(b.store.Release(ctx, l.Claim))
		}
		_, err = b.store.Renew(ctx, lease.RenewRequest{Claim: l.Claim, TTL: lease.MaxTTL, Metadata: map[string]string{metaValue: value, metaID: l.ID}})
		return err
	})
	if err == nil {
		b.tell(ctx)
	}
	return err
}

// mostExtended is how many pins and drains one Look renews.
const mostExtended = 200

// extend renews pins and drains that would end otherwise. It uses the ids that their metadata
// have: one that was ended meanwhile stays so.
func (s *session) extend(ctx context.Context, group map[string]lease.Record) {
	var requests []lease.RenewRequest
	for name, r := range group {
		if !strings.HasPrefix(name, ofPin) && !strings.HasPrefix(name, ofDrain) || r.Remaining >= s.keep || r.Metadata[metaID] == "" {
			continue
		}
		claim := r.Claim
		claim.ID = r.Metadata[metaID]
		if requests = append(requests, lease.RenewRequest{Claim: claim, TTL: lease.MaxTTL}); len(requests) == mostExtended {
			break
		}
	}
	if len(requests) > 0 {
		_, _ = s.renewAll(ctx, requests) // else the next Look does, or another member's
	}
}
