package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

// A change is the effect of one transaction on a name.
type change struct {
	v        *view     // the view on which it was decided: if that changed, nothing is done
	row      rules.Row // the new row
	acquires bool      // its token is the revision of the transaction
	needs    bool      // only while the lease of v goes on
	marks    [kinds]mark
	fresh    []mark // those of marks that were granted for the change
	reused   bool   // some of them were spare
	done     bool   // the transaction was done
}

// keep leaves a mark unchanged.
func (c *change) keep(k kind) { c.marks[k] = c.v.marks[k] }

// add gets an etcd lease for a mark.
func (c *change) add(ctx context.Context, s *Store, k kind, asked int64) error {
	m, reused, err := s.grant(ctx, asked, c.v.term())
	if err == nil {
		c.marks[k], c.fresh, c.reused = m, append(c.fresh, m), c.reused || reused
	}
	return err
}

// commit runs the transaction. It returns the token of the new row, or 0 if the change must be
// decided again. That is so if something else came before: then nothing was done. It is also so if
// the transaction renewed a lease while etcd's leader changed: it was done, but it is unknown which
// leader counts the lease. After an error the outcome is unknown.
func (s *Store) commit(ctx context.Context, c *change) (token uint64, err error) {
	e, err := s.era(ctx)
	if err != nil {
		s.retire(c.fresh...)
		return 0, err
	}
	name := c.row.Name
	token = c.row.Token
	if c.acquires && c.v.row.Token <= e.Base { // tokens of this era are unknown
		token = 0
	}
	text, err := encode(c.row, e.Base, token)
	if err != nil {
		return 0, err
	}
	conditions := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(s.key(name, recordKey)), "=", c.v.revision)}
	if c.acquires {
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(s.eraKey()), "=", e.revision))
	}
	operations := []clientv3.Op{clientv3.OpPut(s.key(name, recordKey), text)}
	var ended []mark
	for k := held; k < kinds; k++ {
		key, before, after := s.key(name, k), c.v.marks[k], c.marks[k]
		if c.needs && before.set() && (k == held || k == alive) {
			conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(key), ">", 0))
		}
		switch {
		case before == after:
			continue
		case after.set():
			operations = append(operations, clientv3.OpPut(key, after.value(), clientv3.WithLease(after.lease)))
		default:
			operations = append(operations, clientv3.OpDelete(key))
		}
		if before.set() {
			ended = append(ended, before)
		}
	}
	r, err := s.client.Txn(ctx).If(conditions...).Then(operations...).Else(clientv3.OpGet(s.eraKey(), clientv3.WithKeysOnly())).Commit()
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound): // it expired before it was used, so nothing was done
		return 0, nil
	case errors.Is(err, rpctypes.ErrNoSpace):
		return 0, s.withoutSpace(ctx, c, err)
	case err != nil:
		return 0, failed(ctx, err)
	case !r.Succeeded:
		s.retire(c.fresh...)
		if now := r.Responses[0].GetResponseRange().Kvs; len(now) == 0 || now[0].ModRevision != e.revision {
			s.eras.forget(e.revision) // another store began one, such as for a member that joined
		}
		return 0, nil
	}
	c.done = true
	s.retire(ended...)
	if err := s.sameHistory(c.v.header, r.Header); err != nil {
		return 0, err
	}
	if c.marks[held].set() && r.Header.RaftTerm != c.v.header.RaftTerm {
		switch {
		case !c.acquires:
			return 0, nil
		case c.reused:
			return 0, doubtful(ctx, errReplaced)
		}
	}
	if token == 0 {
		token = e.Base + uint64(r.Header.Revision)
	}
	return token, s.counted(ctx, c, r.Header)
}

// counted checks that the same leader counted the time of the new etcd leases and committed the
// keys attached to them. A leader that was replaced, but does not know it yet, renews leases that
// the new one counts from an earlier time.
func (s *Store) counted(ctx context.Context, c *change, last *etcdserverpb.ResponseHeader) error {
	for term := c.v.term(); term != int64(last.RaftTerm); {
		term = int64(last.RaftTerm)
		for k, m := range c.marks {
			if !m.set() {
				continue
			}
			in, on, err := s.prolong(ctx, m)
			if !on && err == nil && (kind(k) == held || kind(k) == alive) {
				err = errEnded
			}
			if err != nil {
				return doubtful(ctx, err)
			}
			if on {
				term = min(term, in)
			}
		}
		r, err := s.client.Get(ctx, s.eraKey(), clientv3.WithKeysOnly())
		if err != nil {
			return doubtful(ctx, err)
		}
		last = r.Header
	}
	return nil
}

// longestPause is the longest pause between attempts on a name that others change.
const longestPause = 20 * time.Millisecond

// again calls f until it succeeds or fails. f returns false if the data on which it decided has
// changed.
func (s *Store) again(ctx context.Context, f func(ctx context.Context) (bool, error)) error {
	if s.closing.Err() != nil {
		return errClosed
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	for attempt := time.Duration(0); ; attempt += time.Millisecond {
		if done, err := f(ctx); done || err != nil {
			return err
		}
		if err := pause.For(ctx, min(attempt, longestPause)); err != nil {
			return undone(ctx, errContended)
		}
	}
}

func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = clientv3.WithRequireLeader(ctx)
	if s.config.Timeout < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, s.config.Timeout, errNoAnswer)
}
