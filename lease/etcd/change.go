package etcd

import (
	"context"
	"errors"
	"maps"
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

	ready *readied // for held; nil = none
}

// keep leaves a mark unchanged.
func (c *change) keep(k kind) { c.marks[k] = c.v.marks[k] }

// add gets an etcd lease for a mark.
func (c *change) add(ctx context.Context, s *Store, k kind, asked int64) error {
	of := class{asked, c.v.term()}
	if k == held {
		if got, ok := c.ready.take(c.v, of); ok {
			c.take(k, got)
			return nil
		}
	}
	got, err := s.get(ctx, &want{class: of})
	if err == nil {
		c.take(k, got)
	}
	return err
}

func (c *change) take(k kind, got supplied) {
	c.marks[k], c.fresh, c.reused = got.mark, append(c.fresh, got.mark), c.reused || got.reused
}

// renew makes a mark last as long again from now, by its own etcd lease or by one that is shared;
// false if it has ended. It sets touched if its own may have been renewed.
func (c *change) renew(ctx context.Context, s *Store, k kind, touched *bool) (on bool, err error) {
	m := c.v.marks[k]
	if !m.set() {
		return true, nil
	}
	w := &want{class: class{m.asked, c.v.term()}}
	if !m.shared {
		w.own = m
	}
	got, err := s.get(ctx, w)
	*touched = *touched || got.touched
	if err == nil && got.on && got.mark != m {
		c.take(k, got)
	}
	return got.on, err
}

// commit runs the transaction. It returns the token of the new row, or 0 if the change must be
// decided again. That is so if something else came before: then nothing was done. It is also so if
// the transaction renewed a lease while etcd's leader changed: it was done, but it is unknown which
// leader counts the lease. After an error the outcome is unknown. If something was done, or may
// have been, the view is no longer a guess.
func (s *Store) commit(ctx context.Context, c *change) (token uint64, err error) {
	e, err := s.era(ctx)
	if err != nil {
		s.retire(c.fresh...)
		return 0, err
	}
	if c.v.guess && s.connections.Load() != c.v.made { // they may lead to another history
		s.retire(c.fresh...)
		return 0, nil
	}
	token = c.row.Token
	if c.acquires && c.v.row.Token <= e.Base { // tokens of this era are unknown
		token = 0
	}
	text, err := encode(c.row, e.Base, token)
	if err != nil {
		return 0, err
	}
	t, ended := s.transaction(c, e, text)
	a := s.send(ctx, t)
	switch {
	case errors.Is(a.err, rpctypes.ErrLeaseNotFound): // one expired before it was used, so nothing was done
		return 0, nil
	case a.unsent:
		s.retire(c.fresh...)
		return 0, undone(ctx, a.err)
	case a.err != nil:
		c.v.guess = false
		if errors.Is(a.err, rpctypes.ErrNoSpace) {
			return 0, s.withoutSpace(ctx, c, a.err)
		}
		return 0, failed(ctx, a.err)
	case !a.succeeded:
		s.retire(c.fresh...)
		return 0, s.outdated(c, e, a)
	}
	c.v.guess, c.done = false, true
	s.retire(ended...)
	if err := s.sameHistory(c.v.header, a.header); err != nil {
		return 0, err
	}
	if token == 0 {
		token = e.Base + uint64(a.header.Revision)
	}
	s.know(c, e, token, a.header)
	if c.marks[held].set() && int64(a.header.RaftTerm) != c.v.term() {
		switch {
		case !c.acquires:
			return 0, nil
		case c.reused:
			return 0, doubtful(ctx, errReplaced)
		}
	}
	return token, s.counted(ctx, c, a.header)
}

// transaction returns the transaction of a change, and the marks that end with it.
func (s *Store) transaction(c *change, e era, text string) (t *transaction, ended []mark) {
	name := c.row.Name
	t = &transaction{
		name:     name,
		compares: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(s.key(name, recordKey)), "=", c.v.revision)},
		then:     []clientv3.Op{clientv3.OpPut(s.key(name, recordKey), text)},
		others:   []clientv3.Op{s.read(name), clientv3.OpGet(s.eraKey(), clientv3.WithKeysOnly())},
	}
	if c.acquires {
		t.compares = append(t.compares, clientv3.Compare(clientv3.ModRevision(s.eraKey()), "=", e.revision))
	}
	for k := held; k < kinds; k++ {
		key, before, after := s.key(name, k), c.v.marks[k], c.marks[k]
		if c.needs && before.set() && (k == held || k == alive) {
			t.compares = append(t.compares, clientv3.Compare(clientv3.CreateRevision(key), ">", 0))
		}
		switch {
		case before == after:
			continue
		case after.set():
			t.then = append(t.then, clientv3.OpPut(key, after.value(), clientv3.WithLease(after.lease)))
		default:
			t.then = append(t.then, clientv3.OpDelete(key))
		}
		if before.set() {
			ended = append(ended, before)
		}
	}
	t.size = len(text) + (len(t.compares)+len(t.then)+len(t.others))*(len(s.config.Prefix)+len(name)+perOperation)
	return t, ended
}

// outdated keeps the data that a transaction read when it did nothing, because its view was
// outdated.
func (s *Store) outdated(c *change, e era, a answer) (err error) {
	s.views.drop(c.row.Name)
	s.views.saw(c.v.made, a.header)
	if now := a.responses[1].GetResponseRange().Kvs; len(now) == 0 || now[0].ModRevision != e.revision {
		s.forget(e.revision) // another store began one, such as for a member that joined
		return nil
	}
	c.v.found, err = s.view(c.row.Name, a.responses[0].GetResponseRange().Kvs, a.header, c.v.made)
	return err
}

// know stores the view that a change left: what a read would show.
func (s *Store) know(c *change, e era, token uint64, header *etcdserverpb.ResponseHeader) {
	v := &view{row: c.row, revision: header.Revision, marks: c.marks, header: header, made: c.v.made}
	v.row.Token, v.row.Version = token, e.Base+uint64(header.Revision)
	v.row.Metadata = maps.Clone(c.row.Metadata) // the caller may change its own
	s.views.put(c.row.Name, v)
}

// forget makes the next operation read the era again, and names too.
func (s *Store) forget(era int64) {
	s.eras.forget(era)
	s.views.forget()
}

// counted checks that one leader both counts the time of the new etcd leases and committed the
// keys attached to them. A leader that has been replaced, but does not know it yet, renews leases
// that the new leader counts from an earlier time.
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

// decide calls f with views of a name until it succeeds or fails. f returns false if its view was
// outdated. The first view may be a guess; if f has an answer that its transaction did not confirm,
// it is called again with a view that was read.
func (s *Store) decide(ctx context.Context, name string, f func(ctx context.Context, v *view) (bool, error)) error {
	v := s.guess(name)
	return s.again(ctx, func(ctx context.Context) (done bool, err error) {
		if v == nil {
			if v, err = s.look(ctx, name); err != nil {
				return false, err
			}
		}
		now := v
		done, err = f(ctx, now)
		v = now.found
		switch {
		case !now.guess:
			return done, err
		case err != nil && ctx.Err() != nil:
			return false, undone(ctx, context.Cause(ctx))
		default:
			return false, nil
		}
	})
}

func (s *Store) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx = clientv3.WithRequireLeader(ctx)
	if s.config.Timeout < 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, s.config.Timeout, errNoAnswer)
}
