package etcd

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/lease/internal/gather"
)

// A cluster answers transactions as a test says.
type cluster struct {
	clientv3.KV

	answer func(ctx context.Context, parts []clientv3.Op) error
	mu     sync.Mutex
	sizes  []int
}

func (c *cluster) Txn(ctx context.Context) clientv3.Txn { return &part{cluster: c, ctx: ctx} }

type part struct {
	*cluster

	ctx  context.Context //nolint:containedctx // it is what is looked at
	then []clientv3.Op
}

func (p *part) If(...clientv3.Cmp) clientv3.Txn    { return p }
func (p *part) Else(...clientv3.Op) clientv3.Txn   { return p }
func (p *part) Then(o ...clientv3.Op) clientv3.Txn { p.then = o; return p }

// Commit does all that a request consists of, each part with another result.
func (p *part) Commit() (*clientv3.TxnResponse, error) {
	p.mu.Lock()
	p.sizes = append(p.sizes, len(p.then))
	p.mu.Unlock()
	if err := p.answer(p.ctx, p.then); err != nil {
		return nil, err
	}
	r := &clientv3.TxnResponse{Header: &etcdserverpb.ResponseHeader{Revision: 7}, Succeeded: true}
	for i := range p.then {
		r.Responses = append(r.Responses, &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseTxn{
			ResponseTxn: &etcdserverpb.TxnResponse{Succeeded: i%2 == 0},
		}})
	}
	return r, nil
}

// fleet returns a store whose requests a test answers, and some of its transactions.
func fleet(t *testing.T, n int, answer func(ctx context.Context, parts []clientv3.Op) error) (*Store, *cluster, []*transaction) {
	t.Helper()
	c := &cluster{answer: answer}
	client := clientv3.NewCtxClient(t.Context())
	client.KV = c
	s := &Store{client: client, closing: t.Context()}
	s.sending = gather.Group[*transaction]{Flights: flights, Most: mostSending, Patience: patience, Fly: s.fly}
	t.Cleanup(s.sending.Close)
	all := make([]*transaction, n)
	for i := range all {
		all[i] = &transaction{ctx: t.Context(), name: strconv.Itoa(i), size: 100, done: make(chan struct{})}
		all[i].then = []clientv3.Op{clientv3.OpPut("k", "v"), clientv3.OpPut("l", "v")}
	}
	return s, c, all
}

func answers(all []*transaction) (succeeded []bool, errs []error) {
	for _, t := range all {
		<-t.done
		succeeded, errs = append(succeeded, t.answer.succeeded), append(errs, t.answer.err)
	}
	return succeeded, errs
}

func fly(s *Store, all []*transaction) { s.fly(func() []*transaction { return all }) }

func done(context.Context, []clientv3.Op) error { return nil }

func TestEachChangeOfASharedTransactionHasItsOwnAnswer(t *testing.T) {
	t.Parallel()
	s, c, all := fleet(t, 4, done)
	fly(s, all)
	succeeded, errs := answers(all)
	assert.Equal(t, []bool{true, false, true, false}, succeeded)
	assert.Equal(t, make([]error, 4), errs)
	require.Equal(t, []int{4}, c.sizes)
	fly(s, all[:0])
	require.Equal(t, []int{4}, c.sizes)
}

func TestABatchThatIsTooLargeIsSplit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		n, size int
		answer  func(context.Context, []clientv3.Op) error
		most    int
	}{
		"changes": {n: 2*mostTogether + 1, size: 100, answer: done, most: mostTogether},
		"bytes":   {n: 20, size: sizeTogether / 4, answer: done, most: 4},
		"one":     {n: 2, size: 2 * sizeTogether, answer: done, most: 2}, // each is alone, with two operations
		"by the cluster's number of operations": {n: 90, size: 100, most: 22, answer: func(_ context.Context, parts []clientv3.Op) error {
			if len(parts) > 30 {
				return rpctypes.ErrTooManyOps
			}
			return nil
		}},
		"by the cluster's size of requests": {n: 90, size: 100, most: 45, answer: func(_ context.Context, parts []clientv3.Op) error {
			if len(parts) > 50 {
				return rpctypes.ErrRequestTooLarge
			}
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, cluster, all := fleet(t, c.n, c.answer)
			for _, x := range all {
				x.size = c.size
			}
			fly(s, all)
			_, errs := answers(all)
			require.Equal(t, make([]error, c.n), errs)
			s.sending.Close()
			within, refused := 0, 0
			for _, size := range cluster.sizes {
				if size <= c.most {
					within++
				} else {
					refused++
				}
			}
			require.Greater(t, within, 1)
			if refused > 0 {
				require.Error(t, c.answer(t.Context(), make([]clientv3.Op, c.n)), "only the cluster refuses")
			}
		})
	}
}

func TestTheClustersLimitIsRemembered(t *testing.T) {
	t.Parallel()
	s, c, all := fleet(t, 80, func(_ context.Context, parts []clientv3.Op) error {
		if len(parts) > 40 {
			return rpctypes.ErrTooManyOps
		}
		return nil
	})
	fly(s, all[:60])
	answers(all[:60])
	require.Equal(t, []int{60, 30, 30}, c.sizes)
	fly(s, all[60:])
	answers(all)
	require.Equal(t, 30, s.most.get())
}

// The others' answer does not come earlier or later because of a caller that has left.
func TestACallerThatLeavesASharedTransactionFailsNoOther(t *testing.T) {
	t.Parallel()
	ended, goOn := make(chan error, 1), make(chan struct{})
	s, _, all := fleet(t, 3, func(ctx context.Context, _ []clientv3.Op) error {
		<-goOn
		ended <- ctx.Err()
		return ctx.Err()
	})
	ctx, leave := context.WithCancel(t.Context())
	all[1].ctx = ctx
	s.sending.Go(func() { fly(s, all) })
	leave()
	close(goOn)
	_, errs := answers(all)
	require.Equal(t, make([]error, 3), errs)
	require.NoError(t, <-ended, "it goes on for the others")
}

func TestASharedTransactionEndsWhenAllItsCallersHaveLeft(t *testing.T) {
	t.Parallel()
	s, _, all := fleet(t, 3, func(ctx context.Context, _ []clientv3.Op) error {
		<-ctx.Done()
		return ctx.Err()
	})
	ctx, leave := context.WithCancel(t.Context())
	for _, x := range all {
		x.ctx = ctx //nolint:fatcontext // it is the same for all
	}
	s.sending.Go(func() { fly(s, all) })
	leave()
	_, errs := answers(all)
	for _, err := range errs {
		require.ErrorIs(t, err, context.Canceled)
	}
}

// etcd refuses to change a key twice in one transaction.
func TestANameIsInASharedTransactionOnce(t *testing.T) {
	t.Parallel()
	s, c, all := fleet(t, 4, done)
	all[1].name, all[3].name = all[0].name, all[2].name
	fly(s, all)
	_, errs := answers(all)
	require.Equal(t, make([]error, 4), errs)
	s.sending.Close()
	require.ElementsMatch(t, []int{2, 2, 2}, c.sizes, "one of two names, and two alone that have two operations each")
}

func TestAnErrorOfASharedTransactionIsOneOfEach(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost")
	s, _, all := fleet(t, 3, func(context.Context, []clientv3.Op) error { return lost })
	fly(s, all)
	_, errs := answers(all)
	require.Equal(t, []error{lost, lost, lost}, errs)
	for _, x := range all {
		require.False(t, x.answer.unsent)
		require.True(t, strings.Contains(failed(t.Context(), x.answer.err).Error(), "unknown"))
	}
}

func TestWhatIsNotSentBeforeCloseIsNotDone(t *testing.T) {
	t.Parallel()
	s, c, all := fleet(t, 3, done)
	closing, end := context.WithCancel(t.Context())
	s.closing = closing
	end()
	fly(s, all)
	_, errs := answers(all)
	require.Equal(t, []error{errClosed, errClosed, errClosed}, errs)
	require.True(t, all[0].answer.unsent)
	require.Empty(t, c.sizes)
	s.sending.Close()
	require.Equal(t, answer{unsent: true, err: errClosed}, s.send(t.Context(), all[0]))
}
