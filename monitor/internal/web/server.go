package web

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pglatch/pglatch/lease"
)

// A LockServer is a lock server, or a store of leases, of a Site.
type LockServer struct {
	Name string
	List func(ctx context.Context, r lease.ListRequest) Records
}

const (
	leasesRead  = 1000        // of one lock server, at most
	serverEvery = time.Second // between two reads of a lock server
)

// A serverState is what a lock server said last.
type serverState struct {
	records       []lease.Record // of leases that are held or expired
	held, expired int
	more          bool
	err           error
}

// A serverReader reads a lock server for all viewers, once in serverEvery.
type serverReader struct {
	server LockServer
	turn   chan struct{} // has one element while nobody reads
	state  serverState
	at     time.Time // of the last read
}

func newServerReader(server LockServer) *serverReader {
	r := &serverReader{server: server, turn: make(chan struct{}, 1)}
	r.turn <- struct{}{}
	return r
}

// look returns the newest state. The end of ctx ends the read.
func (r *serverReader) look(ctx context.Context) serverState {
	select {
	case <-r.turn:
		defer func() { r.turn <- struct{}{} }()
	case <-ctx.Done():
		return serverState{err: context.Cause(ctx)}
	}
	if !r.at.IsZero() && time.Since(r.at) < serverEvery {
		return r.state
	}
	state := r.read(ctx)
	if errors.Is(ctx.Err(), context.Canceled) {
		return state // the viewer left, which says nothing about the server
	}
	r.state, r.at = state, time.Now()
	return state
}

func (r *serverReader) read(ctx context.Context) (s serverState) {
	n := 0
	for record, err := range r.server.List(ctx, lease.ListRequest{Limit: leasesRead + 1}) {
		if err != nil {
			return serverState{err: err}
		}
		if n++; n > leasesRead {
			s.more = true
			break
		}
		switch record.State {
		case lease.Held:
			s.held++
		case lease.Expired:
			s.expired++
		default:
			continue
		}
		s.records = append(s.records, record)
	}
	slices.SortStableFunc(s.records, func(a, b lease.Record) int { // those that expired first
		return cmp.Or(cmp.Compare(b.State, a.State), cmp.Compare(a.Name, b.Name))
	})
	return s
}

// A serverView is a lock server in the list.
type serverView struct {
	Name, Why     string // Why it does not answer; "" = it does
	Held, Expired int
	Leases        []leaseView
	Left          int
	More          bool
}

func (r *serverReader) view(ctx context.Context) serverView {
	s := r.look(ctx)
	v := serverView{Name: r.server.Name, Held: s.held, Expired: s.expired, More: s.more}
	if s.err != nil {
		v.Why = why(s.err)
		return v
	}
	for _, record := range s.records[:min(len(s.records), listed)] {
		v.Leases = append(v.Leases, leaseOf(record))
	}
	v.Left = len(s.records) - len(v.Leases)
	return v
}
