package etcd

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/internal/background"
)

// Limits of what is sent together.
const (
	// flights is how many shared requests are under way at a time, while others gather.
	flights = 2

	// patience is how long a request makes others gather. Then they go out without it. Where requests
	// take longer than that, it is up to mostPatience.
	patience     = 25 * time.Millisecond
	mostPatience = 250 * time.Millisecond

	// mostTogether and sizeTogether bound the changes of one transaction, and their bytes. etcd
	// allows 128 operations, those of one change included, and 1.5 MB; both can be configured.
	mostTogether = 100
	sizeTogether = 256 << 10

	// mostSending and mostWants bound what a flight takes at a time.
	mostSending = 1000
	mostWants   = 1000

	// perOperation bounds the bytes of an operation or comparison beside its key and value.
	perOperation = 64
)

// A transaction is the compare-and-swap of one name. Those of several names share a request to
// etcd: there each is a transaction inside another one, which compares nothing.
type transaction struct {
	name     string
	size     int
	compares []clientv3.Cmp
	then     []clientv3.Op
	others   []clientv3.Op // if a comparison failed

	ctx    context.Context
	answer answer
	done   chan struct{} // closed when answer can be read
}

// An answer is the result of a transaction.
type answer struct {
	header    *etcdserverpb.ResponseHeader
	succeeded bool
	responses []*etcdserverpb.ResponseOp
	unsent    bool // nothing was sent
	err       error
}

func (t *transaction) reply(a answer) {
	t.answer = a
	close(t.done)
}

// bound is the limit of changes in one transaction that this cluster is known to allow.
type bound struct{ atomic.Int64 }

func (b *bound) get() int {
	if n := int(b.Load()); n > 0 {
		return n
	}
	return mostTogether
}

// send runs a transaction, alone or together with others. If ctx ends after it was sent, the outcome
// is unknown, even if the others' ctx have not ended.
func (s *Store) send(ctx context.Context, t *transaction) answer {
	t.ctx, t.done = ctx, make(chan struct{})
	if !s.sending.Add(t) {
		return answer{unsent: true, err: errClosed}
	}
	select {
	case <-t.done:
		return t.answer
	case <-ctx.Done():
		return answer{unsent: s.sending.Drop(t), err: context.Cause(ctx)}
	}
}

// fly sends the transactions that have gathered. A name is in a request once, because etcd refuses
// to change a key twice. Further ones on it go alone, at the same time.
func (s *Store) fly(take func() []*transaction) {
	s.sending.Settle()
	batch := take()
	names := make(map[string]bool, len(batch))
	var together []*transaction
	size, most := 0, s.most.get()
	for _, t := range batch {
		switch {
		case s.closing.Err() != nil:
			t.reply(answer{unsent: true, err: errClosed})
			continue
		case names[t.name]:
			s.sending.Go(func() { s.sendAlone(t) })
			continue
		case len(together) == most || len(together) > 0 && size+t.size > sizeTogether:
			full := together
			s.sending.Go(func() { s.sendTogether(full) })
			together, size = nil, 0
		}
		names[t.name] = true
		together, size = append(together, t), size+t.size
	}
	s.sendTogether(together)
	s.sending.Yield(len(batch))
}

func (s *Store) sendAlone(t *transaction) {
	r, err := s.client.Txn(t.ctx).If(t.compares...).Then(t.then...).Else(t.others...).Commit()
	if err != nil {
		t.reply(answer{err: err})
		return
	}
	t.reply(answer{header: r.Header, succeeded: r.Succeeded, responses: r.Responses})
}

// sendTogether sends one request, which ends when all callers have left. If it is too large for the
// cluster, it sends two.
func (s *Store) sendTogether(all []*transaction) {
	switch len(all) {
	case 0:
		return
	case 1:
		s.sendAlone(all[0])
		return
	}
	callers, parts := make([]context.Context, 0, len(all)), make([]clientv3.Op, 0, len(all))
	for _, t := range all {
		callers, parts = append(callers, t.ctx), append(parts, clientv3.OpTxn(t.compares, t.then, t.others))
	}
	ctx, cancel := background.WhileAny(clientv3.WithRequireLeader(context.Background()), callers)
	defer cancel()
	r, err := s.client.Txn(ctx).Then(parts...).Commit()
	switch {
	case isTooLarge(err):
		half := len(all) / 2
		if errors.Is(err, rpctypes.ErrTooManyOps) {
			s.most.Store(int64(half))
		}
		s.sendTogether(all[:half])
		s.sendTogether(all[half:])
		return
	case err != nil:
		for _, t := range all {
			t.reply(answer{err: err})
		}
		return
	}
	for i, t := range all {
		part := r.Responses[i].GetResponseTxn()
		t.reply(answer{header: r.Header, succeeded: part.Succeeded, responses: part.Responses})
	}
}

// isTooLarge reports whether etcd refused a request because of its size, so that nothing was done.
func isTooLarge(err error) bool {
	return anyOf(err, []error{rpctypes.ErrTooManyOps, rpctypes.ErrRequestTooLarge})
}
