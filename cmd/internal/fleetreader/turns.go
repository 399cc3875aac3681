package fleetreader

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/monitor/fleet"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
)

func (r *Reader) readMailboxes(ctx context.Context, f *fleet.Fleet) error {
	rows, err := r.pool.Query(ctx, `SELECT name, namespace, (SELECT pg_catalog.count(*) FROM pglatch_turns.messages m WHERE m.mailbox OPERATOR(pg_catalog.=) b.name)
		FROM pglatch_turns.mailboxes b ORDER BY name LIMIT $1::pg_catalog.int8`, int64(mostMailboxes)+1)
	if err != nil {
		return err
	}
	type mailbox struct {
		Name, Namespace string
		Messages        int64
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[mailbox])
	if err != nil {
		return err
	}
	for _, b := range cut(f, all, mostMailboxes) {
		one := fleet.Mailbox{Name: b.Name, Namespace: b.Namespace, Messages: b.Messages}
		if err := r.readMailbox(ctx, &one); err != nil {
			return err
		}
		if err := r.readNodes(ctx, f, &one); err != nil {
			return err
		}
		f.Mailboxes = append(f.Mailboxes, one)
	}
	return nil
}

func (r *Reader) readMailbox(ctx context.Context, b *fleet.Mailbox) error {
	n, err := program.ParseNamespace("mailbox", b.Namespace)
	if err != nil {
		return nil //nolint:nilerr // no program wrote the row
	}
	m, err := turns.Open(ctx, turns.Config{Pool: r.pool, Name: b.Name, Namespace: n})
	if err != nil {
		return nil //nolint:nilerr // as before
	}
	s, err := m.Stats(ctx)
	if err != nil {
		return err
	}
	b.Ready, b.Running, b.Stopped, b.Dead, b.Oldest = s.Ready, s.Running, s.Stopped, s.Dead, s.OldestReady
	rows, err := r.pool.Query(ctx, `SELECT entity, node, attempts, coalesce(extract(epoch FROM pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-) claimed_at)::pg_catalog.float8, 0)
		FROM pglatch_turns.entities WHERE mailbox OPERATOR(pg_catalog.=) $1::pg_catalog.text AND state OPERATOR(pg_catalog.=) 'running'
		ORDER BY claimed_at LIMIT $2::pg_catalog.int8`, b.Name, int64(mostTurns))
	if err != nil {
		return err
	}
	b.Turns, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t fleet.Turn, err error) {
		var age float64
		err = row.Scan(&t.Entity, &t.Node, &t.Attempt, &age)
		t.Age = time.Duration(max(age, 0) * float64(time.Second))
		return t, err
	})
	return err
}

// readNodes reads the nodes of a mailbox, each of which holds a lock.
func (r *Reader) readNodes(ctx context.Context, f *fleet.Fleet, b *fleet.Mailbox) error {
	rows, err := r.pool.Query(ctx, `SELECT node, key FROM pglatch_turns.nodes WHERE mailbox OPERATOR(pg_catalog.=) $1::pg_catalog.text ORDER BY node`, b.Name)
	if err != nil {
		return err
	}
	type node struct {
		Node string
		Key  int64
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[node])
	if err != nil {
		return err
	}
	for _, n := range all {
		b.Nodes = append(b.Nodes, n.Node)
		f.Locks[namespace.SingleRaw(n.Key).Tag()] = fleet.Lock{Kind: fleet.NodeLock, Text: "mailbox " + b.Name + ", node " + n.Node}
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
		f.Leases = append(f.Leases, fleet.Lease{
			Name: record.Name, State: record.State.String(), Holder: record.Holder, Token: record.Token, Acquired: record.AcquiredAt, Left: record.Remaining,
		})
	}
	return nil
}
