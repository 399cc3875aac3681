package etcd_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/etcd"
)

func TestManyRenewalsTakeTheTimeOfOneWhileNobodyAnswers(t *testing.T) {
	t.Parallel()
	member := etcdtest.Start(t, etcdtest.Member{Dir: filepath.Join(t.TempDir(), "etcd"), NoFsync: true})
	s := open(t, func(c *etcd.Config) { c.Timeout = 5 * time.Second }, member.Address)
	l, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Hour})
	require.NoError(t, err)
	all := slices.Repeat([]lease.RenewRequest{{Claim: l.Claim, TTL: time.Hour}}, 300)
	member.Signal(syscall.SIGSTOP)
	eventually(t, func() bool { return isStopped(t, member.PID()) }, "a busy machine stops it later")
	results, err := s.RenewAll(t.Context(), all)
	require.NoError(t, err)
	require.Len(t, results, len(all))
	begun := 0
	for _, r := range results {
		require.Error(t, r.Err)
		if !strings.Contains(r.Err.Error(), "took too long") {
			begun++
			continue
		}
		require.ErrorIs(t, r.Err, lease.ErrBusy)
	}
	require.Less(t, begun, 2*64, "no second round begins")

	member.Signal(syscall.SIGCONT)
	eventually(t, func() bool {
		results, err = s.RenewAll(t.Context(), all[:1])
		return err == nil && results[0].Err == nil
	}, "nothing is renewed")
	require.NoError(t, s.Close())
	_, err = s.RenewAll(t.Context(), all)
	require.ErrorIs(t, err, lease.ErrClosed)
}

// isStopped reports whether no thread of a process runs (Linux manual, proc_pid_stat(5)).
func isStopped(t *testing.T, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	require.NoError(t, err)
	require.NotEmpty(t, threads)
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		require.NoError(t, err)
		if _, state, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(state, "T") {
			return false
		}
	}
	return true
}

// At a time, each of them would be in the way of the others, and some would not be done within the timeout.
func TestManyRenewalsOfOneLeaseAreNotInEachOthersWay(t *testing.T) {
	t.Parallel()
	s := open(t, nil, serve(t, etcdtest.Member{NoFsync: true}))
	l, err := s.Acquire(t.Context(), lease.AcquireRequest{Name: "job", Holder: "a", TTL: time.Hour})
	require.NoError(t, err)
	all := slices.Repeat([]lease.RenewRequest{{Claim: l.Claim, TTL: time.Hour}}, 280)
	for i := range all {
		if i%14 == 0 {
			all[i].Metadata = map[string]string{"i": strconv.Itoa(i)}
		}
	}
	results, err := s.RenewAll(t.Context(), all)
	require.NoError(t, err)
	for i, r := range results {
		require.NoError(t, r.Err, i)
		require.Equal(t, map[string]string{"i": strconv.Itoa(i / 14 * 14)}, r.Lease.Metadata, "one after the other")
	}
}

// BenchmarkRenewAll renews 1,000 leases at once, on a cluster of three processes with fsync.
func BenchmarkRenewAll(b *testing.B) {
	s := openMembers(b, 3)
	var all []lease.RenewRequest
	for i := range 1000 {
		l, err := s.Acquire(b.Context(), lease.AcquireRequest{Name: strconv.Itoa(i), Holder: "a", TTL: time.Hour})
		require.NoError(b, err)
		all = append(all, lease.RenewRequest{Claim: l.Claim, TTL: time.Hour})
	}
	for b.Loop() {
		results, err := s.RenewAll(b.Context(), all)
		require.NoError(b, err)
		for _, r := range results {
			require.NoError(b, r.Err)
		}
	}
	b.ReportMetric(float64(len(all)*b.N)/b.Elapsed().Seconds(), "renewals/s")
}
