package resend

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
)

// rules are those of Lease, or a mutation of them.
type rules struct {
	request  func(l *Lease) lease.AcquireRequest
	answered func(l *Lease, got lease.Lease, err error)
	renewed  func(l *Lease, s *result)
	released func(l *Lease, s *result)
}

// result is a store that gives one answer.
type result struct {
	err      error
	released bool // it was asked to release
}

func (r *result) Renew(context.Context, lease.RenewRequest) (lease.Lease, error) {
	return lease.Lease{}, r.err
}

func (r *result) Release(context.Context, lease.Claim) error {
	r.released = true
	return r.err
}

func ours() rules {
	return rules{
		request:  func(l *Lease) lease.AcquireRequest { return l.Request(lease.AcquireRequest{}) },
		answered: (*Lease).Answered,
		renewed:  func(l *Lease, s *result) { _, _ = l.Renew(context.Background(), s, 1) },
		released: func(l *Lease, s *result) { _ = l.Release(context.Background(), s) },
	}
}

// other is the key of the lease that another client has.
const other = "other"

// A world is a client, and a store with one name. A lease's ID is the key of the request that got it.
type world struct {
	client Lease
	store  string // key of the current lease; "" = none
	late   bool   // a release of the client's lease is under way
}

// alike is the same for worlds whose keys differ in nothing but their texts.
func (w world) alike() string {
	is := func(a, b string) bool { return a != "" && a == b }
	id := ""
	if w.client.held != nil {
		id = w.client.held.ID
	}
	return fmt.Sprint(w.client.held != nil, w.client.key != "", w.client.lost, w.store == "", w.store == other, is(w.store, id), is(w.store, w.client.key), w.client.ending, w.late)
}

var (
	errLost = errors.New("connection reset")
	errBusy = fmt.Errorf("wrapped: %w", &lease.BusyError{Cause: errLost})
)

// check returns what is wrong in a world between two calls.
func (w world) check() error {
	c := w.client
	switch {
	case c.held != nil && c.key != "":
		return errors.New("the client has a lease, and requests another")
	case w.store == "" || w.store == other || c.held != nil && c.held.ID == w.store || c.key == w.store:
		return nil
	}
	return errors.New("the store holds a lease of the client that the client does not know")
}

// acquire sends the request. The outcome is an answer, or the loss of the request or of the answer.
func (w world) acquire(r rules, arrives, busy, answers bool) (world, error) {
	wasLost := w.client.lost
	key := r.request(&w.client).IdempotencyKey
	var got lease.Lease
	err := errLost
	switch {
	case busy:
		err = errBusy
	case arrives && (w.store == "" || w.store == key):
		w.store, got, err = key, lease.Lease{Claim: lease.Claim{ID: key}}, nil
	case arrives:
		err = &lease.HeldError{}
	}
	if !answers {
		got, err = lease.Lease{}, errLost
	}
	r.answered(&w.client, got, err)
	switch known := w.client.key == ""; {
	case answers && !busy && !known:
		return w, errors.New("the store has said what the outcome is, and the client does not know it")
	case answers && busy && !wasLost && !known:
		return w, errors.New("nothing was done, and the client does not know it")
	case err == nil && (w.client.held == nil || w.client.held.ID != w.store):
		return w, errors.New("the client does not have the lease that it got")
	case err != nil && w.client.held != nil:
		return w, errors.New("the client has a lease that it did not get")
	}
	return w, nil
}

// end renews or releases the client's lease. A release that is lost can arrive later.
func (w world) end(does func(l *Lease, s *result), arrives, answers bool) (world, error) {
	if w.client.held == nil {
		return w, nil
	}
	var done error
	switch mine := w.store == w.client.held.ID; {
	case !arrives:
		done = errLost
	case !mine:
		done = &lease.StaleError{}
	}
	s := &result{err: done}
	if !answers {
		s.err = errLost
	}
	does(&w.client, s)
	over := s.err == nil && s.released || lease.IsOver(s.err)
	if done == nil && s.released {
		w.store = ""
	}
	switch {
	case over != (w.client.held == nil):
		return w, fmt.Errorf("the lease is over: %v, and the client has it: %v", over, w.client.held != nil)
	case s.err == nil && !s.released && w.late:
		return w, errors.New("the client has renewed a lease that a release under way will end")
	}
	w.late = !over && (w.late || s.released && !arrives)
	return w, nil
}

// after returns the worlds that can come next.
func (w world) after(r rules) (all []world, err error) {
	add := func(to world, wrong error) {
		if wrong == nil {
			wrong = to.check()
		}
		if wrong != nil && err == nil {
			err = fmt.Errorf("%+v, then %+v: %w", w, to, wrong)
		}
		all = append(all, to)
	}
	for _, store := range []string{"", other} { // the lease expires, or another client gets the name
		if w.store == "" || store == "" {
			add(world{w.client, store, w.late}, nil)
		}
	}
	if w.late {
		store := w.store
		if store == w.client.held.ID {
			store = ""
		}
		add(world{w.client, store, false}, nil)
	}
	for _, arrives := range []bool{false, true} {
		for _, answers := range []bool{false, arrives} {
			if w.client.held == nil { // else a client requests no other
				add(w.acquire(r, arrives, false, answers))
			}
			add(w.end(r.renewed, arrives, answers))
			add(w.end(r.released, arrives, answers))
		}
	}
	if w.client.held == nil {
		add(w.acquire(r, false, true, true))
	}
	return all, err
}

// explore visits every world that can be reached, and returns how many differ.
func explore(r rules) (int, error) {
	seen := map[string]bool{}
	for queue := []world{{}}; len(queue) > 0; queue = queue[1:] {
		w := queue[0]
		if seen[w.alike()] {
			continue
		}
		seen[w.alike()] = true
		all, err := w.after(r)
		if err != nil {
			return len(seen), err
		}
		queue = append(queue, all...)
	}
	return len(seen), nil
}

func TestNoLeaseIsHeldThatTheClientDoesNotKnow(t *testing.T) {
	t.Parallel()
	visited, err := explore(ours())
	require.NoError(t, err)
	assert.GreaterOrEqual(t, visited, 8)
	var none Lease
	require.NoError(t, none.Release(t.Context(), &result{err: errLost}), "nothing is asked")
}

// The exploration is worth what it finds in rules that are wrong.
func TestTheExplorationFindsEveryMutation(t *testing.T) {
	t.Parallel()
	for name, mutate := range map[string]func(r *rules){
		"each sending has another key": func(r *rules) {
			r.request = func(l *Lease) lease.AcquireRequest { l.key = ""; return l.Request(lease.AcquireRequest{}) }
		},
		"a lost answer is forgotten": func(r *rules) {
			r.answered = func(l *Lease, got lease.Lease, err error) {
				if l.Answered(got, err); err != nil {
					*l = Lease{}
				}
			}
		},
		"a refusal settles what was lost before": func(r *rules) {
			r.answered = func(l *Lease, got lease.Lease, err error) {
				if lease.NothingDone(err) {
					l.lost = false
				}
				l.Answered(got, err)
			}
		},
		"a refusal settles nothing": func(r *rules) {
			r.answered = func(l *Lease, got lease.Lease, err error) {
				l.lost = l.lost || err != nil
				l.Answered(got, err)
			}
		},
		"a lease of another settles nothing": func(r *rules) {
			r.answered = func(l *Lease, got lease.Lease, err error) {
				if errors.Is(err, lease.ErrHeld) {
					err = errLost
				}
				l.Answered(got, err)
			}
		},
		"a grant settles nothing": func(r *rules) {
			r.answered = func(l *Lease, got lease.Lease, err error) {
				key := l.key
				if l.Answered(got, err); err == nil {
					l.key = key
				}
			}
		},
		"a lost renewal is a lost lease": func(r *rules) { r.renewed = func(l *Lease, _ *result) { *l = Lease{} } },
		"a lost release is a release": func(r *rules) {
			r.released = func(l *Lease, s *result) { s.released, *l = true, Lease{} }
		},
		"a lease that is over is kept":     func(r *rules) { r.renewed = func(*Lease, *result) {} },
		"a lease that is released is kept": func(r *rules) { r.released = func(_ *Lease, s *result) { s.released = true } },
		"a lease whose release is lost is renewed": func(r *rules) {
			renewed := r.renewed
			r.renewed = func(l *Lease, s *result) { l.ending = false; renewed(l, s) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := ours()
			mutate(&r)
			_, err := explore(r)
			require.Error(t, err)
			t.Log(err)
		})
	}
}
