package fleetreader

import (
	"context"

	"github.com/pglatch/pglatch/internal/mailboxes"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/monitor/fleet"
	"github.com/pglatch/pglatch/namespace"
)

func (r *Reader) readMailboxes(ctx context.Context, f *fleet.Fleet) error {
	all, err := mailboxes.Read(ctx, r.pool, mailboxes.Request{Most: mostMailboxes + 1, Counts: true})
	if err != nil {
		return err
	}
	for _, b := range cut(f, all, mostMailboxes) {
		one := fleet.Mailbox{
			Name: b.Name, Namespace: b.Namespace, Messages: b.Counts.Messages, Oldest: b.Oldest.Duration(),
			Ready: b.Counts.Ready, Running: b.Counts.Running, Stopped: b.Counts.Stopped, Dead: b.Counts.Dead,
		}
		for _, n := range b.Nodes { // a row stays if its node was killed
			if n.Alive {
				one.Nodes = append(one.Nodes, n.Name)
			}
			f.Locks[namespace.SingleRaw(n.Key).Tag()] = fleet.Lock{Kind: fleet.NodeLock, Text: "mailbox " + b.Name + ", node " + n.Name}
		}
		for _, t := range b.Turns {
			one.Turns = append(one.Turns, fleet.Turn{Entity: t.Entity, Node: t.Node, Attempt: t.Attempts, Age: t.Age.Duration()})
		}
		f.Mailboxes = append(f.Mailboxes, one)
	}
	return nil
}

func (r *Reader) readLeases(ctx context.Context, f *fleet.Fleet) error {
	for record, err := range r.leases.List(ctx, lease.ListRequest{}) {
		if err != nil {
			return err
		}
		if len(f.Leases) == mostLeases {
			f.More = true
			return nil
		}
		f.Leases = append(f.Leases, LeaseOf(record))
	}
	return nil
}

// LeaseOf returns the lease of a record.
func LeaseOf(r lease.Record) fleet.Lease {
	return fleet.Lease{
		Name: r.Name, State: r.State.String(), Holder: r.Holder, Token: r.Token, Acquired: r.AcquiredAt, Left: r.Remaining, Waiters: r.Waiters,
	}
}
