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

// An era is a time in which a cluster forgets nothing. In an era, the first token of a name is the
// revision of the transaction that acquired the lease, plus the Base of the era. That is also so
// after a sweep forgot the name. From there each token is one more. So no token is above the Base
// plus the present revision, because each took a revision.
type era struct {
	Base    uint64   `json:"base"`
	Cluster uint64   `json:"cluster"` // its id
	Members []uint64 `json:"members"` // their ids, in order
	Surplus int64    `json:"surplus"` // of entries in the cluster's log over revisions, which never falls in one history
	Format  int      `json:"format"`  // of all stored data

	revision int64 // of the key
}

const (
	eraSize = 1 << 40 // tokens
	format  = 1
	// slack allows for the fact that a member does not read the two numbers of a surplus at one
	// moment.
	slack = 64
)

// eras holds this process's knowledge of the era.
type eras struct {
	finding chan struct{} // of size one: full while a goroutine reads the era

	mu         sync.Mutex
	known      era   // the zero era = none
	connection int64 // the last connection when the era was read
	forgotten  int   // how often known was forgotten

	seen atomic.Int64 // the greatest revision seen
}

func (e *eras) get(connection int64) (known era, forgotten int, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.known, e.forgotten, e.known.revision != 0 && e.connection == connection
}

// set stores the era that was read, unless an era has been forgotten since the read
// began, when the count of forgotten ones was forgotten.
func (e *eras) set(found era, connection int64, forgotten int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.forgotten == forgotten {
		e.known, e.connection = found, connection
	}
}

// forget makes the next operation read the era again, if it is still that of a revision of its key;
// 0 = any.
func (e *eras) forget(revision int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if revision == 0 || e.known.revision == revision {
		e.known = era{}
		e.forgotten++
	}
}

// see records a revision.
func (e *eras) see(revision int64) {
	for {
		seen := e.seen.Load()
		if seen >= revision || e.seen.CompareAndSwap(seen, revision) {
			return
		}
	}
}

func (s *Store) eraKey() string { return s.config.Prefix + separator + "era" }

// era returns the present era. If a connection was made since the last check, it asks the cluster
// for its identity: no history ends without the end of all connections. One goroutine asks at a
// time. The others wait for it as long as their own ctx allows.
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

// findEra reads the era, and begins another one if the cluster does not have its history.
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

// differs returns why a cluster does not have the history of an era; "" = nothing shows that.
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

// identity returns the cluster's identity.
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

// surplus returns how much longer than the number of revisions the log of a member is that knows a
// revision. Each entry of the log makes one revision at most, so the surplus never falls. The
// exception is a cluster that was restored from a snapshot: its log begins anew.
func (s *Store) surplus(ctx context.Context, revision int64) (int64, error) {
	for {
		r, err := etcdserverpb.NewMaintenanceClient(s.client.ActiveConnection()).Status(ctx, &etcdserverpb.StatusRequest{})
		switch {
		case err != nil && status.Code(err) != codes.Unavailable:
			return 0, err
		case err == nil && r.Header.Revision >= revision:
			return int64(r.RaftAppliedIndex) - r.Header.Revision, nil
		}
		if ended := pause.For(ctx, 10*time.Millisecond); ended != nil { // the member is behind or knows no leader; the next request may reach another
			return 0, errors.Join(ended, err)
		}
	}
}

// sameHistory returns an error if a read and a write are not of one history.
func (s *Store) sameHistory(read, written *etcdserverpb.ResponseHeader) error {
	s.eras.see(written.Revision)
	if read.ClusterId == written.ClusterId && read.Revision < written.Revision {
		return nil
	}
	s.forget(0)
	return fmt.Errorf("lease/etcd: %w: whether it was done is unknown", errHistory)
}
