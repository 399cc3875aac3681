package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pglatch/pglatch/internal/pause"
)

// An era is the time in which a cluster forgets nothing. The first token of a name in it, also
// after a sweep forgot the name, is the revision of the transaction that acquired the lease and
// the Base of the era; from there each is one more. So none is above the Base and the present revision,
// for each took a revision.
type era struct {
	Base    uint64   `json:"base"`
	Cluster uint64   `json:"cluster"` // its id
	Members []uint64 `json:"members"` // their ids, in order
	Surplus int64    `json:"surplus"` // of entries in the cluster's log over revisions, which never falls in one history
	Format  int      `json:"format"`  // of all that is stored

	revision int64 // of the key
}

const (
	eraSize = 1 << 40 // tokens
	format  = 1
	// slack is for the two numbers of a surplus, which a member does not read at one moment.
	slack = 64
)

// eras is the era as this process knows it.
type eras struct {
	finding chan struct{} // of size one: full while somebody finds it out

	mu         sync.Mutex
	known      era   // the zero era = none
	connection int64 // the last one that was made when it was found out
	forgotten  int   // how often known was

	seen atomic.Int64 // the greatest revision that was
}

func (e *eras) get(connection int64) (known era, forgotten int, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known, e.forgotten, e.known.revision != 0 && e.connection == connection
}

// set notes what was found out since so many were forgotten, unless one was forgotten meanwhile.
func (e *eras) set(found era, connection int64, forgotten int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.forgotten == forgotten {
		e.known, e.connection = found, connection
	}
}

// forget has the era found out again, if it is still that of a revision of its key; 0 = any.
func (e *eras) forget(revision int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if revision == 0 || e.known.revision == revision {
		e.known = era{}
		e.forgotten++
	}
}

// see notes a revision.
func (e *eras) see(revision int64) {
	for {
		seen := e.seen.Load()
		if seen >= revision || e.seen.CompareAndSwap(seen, revision) {
			return
		}
	}
}

func (s *Store) eraKey() string { return s.config.Prefix + separator + "era" }

// era is the present one. It asks the cluster for its identity when a connection was made
// since that was done last: no history ends without the end of all connections. One asks at a
// time; the others wait for it for as long as their own ctx allows.
func (s *Store) era(ctx context.Context) (era, error) {
	if e, _, ok := s.eras.get(s.connections.Load()); ok {
		return e, nil
	}
	select {
	case s.eras.finding <- struct{}{}:
		defer func() { <-s.eras.finding }()
	case <-ctx.Done():
		return era{}, undone(ctx, context.Cause(ctx))
	}
	made := s.connections.Load()
	e, forgotten, ok := s.eras.get(made)
	if ok {
		return e, nil
	}
	e, err := s.findEra(ctx)
	if err == nil {
		s.eras.set(e, made, forgotten)
	}
	return e, err
}

// findEra reads the era, and begins another one if the cluster has not the history of that.
func (s *Store) findEra(ctx context.Context) (era, error) {
	for {
		seen := s.eras.seen.Load() // before the read: others change names meanwhile
		r, err := s.client.Get(ctx, s.eraKey())
		if err != nil {
			return era{}, undone(ctx, err)
		}
		var stored era
		if len(r.Kvs) > 0 {
			if err := json.Unmarshal(r.Kvs[0].Value, &stored); err != nil || stored.Format != format {
				return era{}, fmt.Errorf("lease/etcd: the key %q is of something else, or of a newer version", s.eraKey())
			}
			stored.revision = r.Kvs[0].ModRevision
		}
		present, err := s.identity(ctx, r.Header)
		if err != nil {
			return era{}, undone(ctx, err)
		}
		switch why := stored.differs(present, seen > r.Header.Revision); {
		case stored.revision != 0 && why == "":
			s.eras.see(r.Header.Revision)
			return stored, nil
		case stored.revision != 0:
			s.config.Logger.Warn("the etcd cluster may have forgotten tokens: going on above all that it can have given", slog.String("why", why))
			present.Base = stored.Base + eraSize
		}
		text, err := json.Marshal(present)
		if err != nil {
			return era{}, err
		}
		done, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(s.eraKey()), "=", stored.revision)).
			Then(clientv3.OpPut(s.eraKey(), string(text))).Commit()
		if err != nil {
			return era{}, undone(ctx, err)
		}
		if done.Succeeded {
			s.eras.seen.Store(done.Header.Revision)
		}
	}
}

// differs says why a cluster has not the history of an era; "" = nothing shows that.
func (e era) differs(present era, back bool) string {
	switch {
	case e.Cluster != present.Cluster:
		return "its id is another"
	case !slices.Equal(e.Members, present.Members):
		return "its members are others"
	case present.Surplus < e.Surplus-slack:
		return "its log is shorter than its history"
	case back:
		return "its revision went back"
	}
	return ""
}

// identity is what a cluster says of itself.
func (s *Store) identity(ctx context.Context, h *etcdserverpb.ResponseHeader) (era, error) {
	members, err := s.client.MemberList(ctx)
	if err != nil {
		return era{}, err
	}
	e := era{Cluster: h.ClusterId, Format: format}
	for _, m := range members.Members {
		e.Members = append(e.Members, m.ID)
	}
	slices.Sort(e.Members)
	e.Surplus, err = s.surplus(ctx, h.Revision)
	return e, err
}

// surplus is by how much the log of a member that knows a revision is longer than the
// revisions. Each entry of the log makes one revision at most, so it never falls, but for a
// cluster that was restored from a snapshot: its log begins anew.
func (s *Store) surplus(ctx context.Context, revision int64) (int64, error) {
	for {
		r, err := etcdserverpb.NewMaintenanceClient(s.client.ActiveConnection()).Status(ctx, &etcdserverpb.StatusRequest{})
		switch {
		case err != nil && status.Code(err) != codes.Unavailable:
			return 0, err
		case err == nil && r.Header.Revision >= revision:
			return int64(r.RaftAppliedIndex) - r.Header.Revision, nil
		}
		if ended := pause.For(ctx, 10*time.Millisecond); ended != nil { // the member is behind or knows no leader, and the next one that is asked may be another
			return 0, errors.Join(ended, err)
		}
	}
}

// sameHistory returns an error if what was read and what was written are not of one history.
func (s *Store) sameHistory(read, written *etcdserverpb.ResponseHeader) error {
	s.eras.see(written.Revision)
	if read.ClusterId == written.ClusterId && read.Revision < written.Revision {
		return nil
	}
	s.eras.forget(0)
	return fmt.Errorf("lease/etcd: %w: whether it was done is unknown", errHistory)
}
