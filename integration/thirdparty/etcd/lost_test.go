package etcd_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/lease"
)

func TestALeaseOutlivesTwoOfThreeMachinesIfEachIsReplaced(t *testing.T) {
	t.Parallel()
	members := etcdtest.StartCluster(t, t.TempDir(), 3)
	(&cluster{t: t, members: members}).leader() // until then nobody is served
	replacement := etcdtest.Member{Name: "m4", Dir: filepath.Join(t.TempDir(), "m4"), Peers: etcdtest.FreeURL(t), Clients: etcdtest.FreeURL(t), Joins: true}
	store := open(t, nil, members[0].Address, members[1].Address, members[2].Address, replacement.Clients)
	first, err := store.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Hour})
	require.NoError(t, err)
	goesOn := func() {
		t.Helper()
		eventually(t, func() bool {
			_, err := store.Renew(t.Context(), lease.RenewRequest{Claim: first.Claim, TTL: time.Hour})
			require.NotErrorIs(t, err, lease.ErrStale)
			return err == nil
		}, "nobody is served")
		eventually(t, func() bool {
			_, err := store.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "b", TTL: time.Hour})
			require.Error(t, err)
			return errors.Is(err, lease.ErrHeld)
		}, "nobody is refused")
	}
	lose := func(m *etcdtest.Process) {
		t.Helper()
		m.Kill()
		require.NoError(t, os.RemoveAll(m.Member.Dir))
	}

	lose(members[0])
	goesOn()
	members = append(members, replace(t, members[0], replacement, members[1:]))
	goesOn()

	lose(members[1])
	goesOn()
	eventually(t, func() bool { return store.Release(t.Context(), first.Claim) == nil }, "nothing is released")
	var next lease.Lease
	eventually(t, func() bool {
		next, err = store.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "b", TTL: time.Hour, IdempotencyKey: "1"})
		return err == nil
	}, "nothing is granted")
	assert.Greater(t, next.Token, first.Token)
}

// replace has the others take a new member for one that is lost, and starts it.
func replace(t *testing.T, lost *etcdtest.Process, by etcdtest.Member, others []*etcdtest.Process) *etcdtest.Process {
	t.Helper()
	admin, err := clientv3.New(clientv3.Config{Endpoints: []string{others[0].Address, others[1].Address}, Logger: zap.NewNop()})
	require.NoError(t, err)
	defer admin.Close()
	eventually(t, func() bool {
		all, err := admin.MemberList(t.Context())
		if err != nil {
			return false
		}
		gone := slices.IndexFunc(all.Members, func(m *etcdserverpb.Member) bool { return m.Name == lost.Member.Name })
		if gone >= 0 {
			_, err = admin.MemberRemove(t.Context(), all.Members[gone].ID)
		}
		return err == nil
	}, "it is not removed")
	eventually(t, func() bool {
		_, err := admin.MemberAdd(t.Context(), []string{by.Peers})
		return err == nil
	}, "no other takes its place")
	by.Cluster = strings.Replace(lost.Member.Cluster, lost.Member.Name+"="+lost.Member.Peers, by.Name+"="+by.Peers, 1)
	replaced := etcdtest.Start(t, by)
	eventually(t, func() bool {
		s, err := admin.Status(t.Context(), replaced.Address)
		return err == nil && !s.IsLearner && len(s.Errors) == 0
	}, "it does not join")
	return replaced
}
