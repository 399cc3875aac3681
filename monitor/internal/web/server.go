package web

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/monitor/internal/shared"
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
	waiters       *int // nil = unknown
	more          bool
	err           error
}

// A serverReader reads a lock server for all viewers, once in serverEvery.
type serverReader struct {
	server LockServer
	reader shared.Reader[serverState]
}

func newServerReader(server LockServer) *serverReader {
	r := &serverReader{server: server}
	r.reader = shared.Reader[serverState]{Every: serverEvery, Do: r.run}
	return r
}

// look returns the newest state. If ctx ends, the read continues for other viewers, until siteWait.
func (r *serverReader) look(ctx context.Context) serverState {
	s, err := r.reader.Look(ctx)
	if err != nil {
		return serverState{err: err}
	}
	return s
}

// run reads the server. List can be code of the program: it may panic, end its goroutine, or never return.
func (r *serverReader) run() (s serverState) {
	ctx, cancel := context.WithTimeout(context.Background(), siteWait)
	defer cancel()
	err := background.Outlive(func() error {
		s = r.read(ctx)
		return nil
	})
	if err != nil {
		return serverState{err: err}
	}
	return s
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
		if record.Waiters != nil {
			if s.waiters == nil {
				s.waiters = new(int)
			}
			*s.waiters += *record.Waiters
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
	slices.SortStableFunc(s.records, func(a, b lease.Record) int { // those that expired or are waited for first
		return cmp.Or(cmp.Compare(b.State, a.State), cmp.Compare(waiting(b), waiting(a)), cmp.Compare(a.Name, b.Name))
	})
	return s
}

// waiting returns how many requests wait for a lock, as far as that is known.
func waiting(r lease.Record) int {
	if r.Waiters == nil {
		return 0
	}
	return *r.Waiters
}

// A serverView is a lock server in the list.
type serverView struct {
	Name, Why     string // Why it does not answer; "" = it does
	Held, Expired int
	Waiters       *int // nil = unknown
	Leases        []leaseView
	LeaseHeads    []head
	Left          int
	More          bool
}

func (r *serverReader) view(ctx context.Context) serverView {
	s := r.look(ctx)
	v := serverView{Name: r.server.Name, Held: s.held, Expired: s.expired, Waiters: s.waiters, More: s.more, LeaseHeads: leaseColumns.plain()}
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
