package pgsession

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/namespace"
)

func TestTheDetailOfADeadlockIsReadInAnyLanguage(t *testing.T) {
	t.Parallel()
	want := []cycleWait{{11, namespace.Pair(1, 42).Tag()}, {12, namespace.Tag{}}, {13, namespace.SingleRaw(-1).Tag()}}
	for _, detail := range []string{
		"Process 11 waits for ExclusiveLock on advisory lock [5,1,42,2]; blocked by process 12.\n" +
			"Process 12 waits for ShareLock on transaction 745; blocked by process 13.\n" +
			"Process 13 waits for ShareLock on advisory lock [5,4294967295,4294967295,1]; blocked by process 11.",
		"Prozess 11 wartet auf ExclusiveLock-Sperre auf Advisory-Lock [5,1,42,2]; blockiert von Prozess 12.\n" +
			"Prozess 12 wartet auf ShareLock-Sperre auf Transaktion 745; blockiert von Prozess 13.\n" +
			"Prozess 13 wartet auf ShareLock-Sperre auf Advisory-Lock [5,4294967295,4294967295,1]; blockiert von Prozess 11.",
	} {
		assert.Equal(t, want, parseCycle(detail))
	}
}

func TestACycleThroughAConnectionOfALockerIsBelievedOnlyIfTheTurnstileIsInTheWay(t *testing.T) {
	t.Parallel()
	a, b := namespace.Pair(1, 1).Tag(), namespace.Pair(1, 2).Tag()
	gate := turnstile.Of(b)
	for name, c := range map[string]struct {
		waits []cycleWait
		locks map[uint32][]namespace.Tag
		in    map[uint32]bool // a transaction
		want  []namespace.Tag // nil = not believed
	}{
		"two transactions": {
			[]cycleWait{{1, a}, {2, b}}, map[uint32][]namespace.Tag{1: {a, b}, 2: {a, b}}, map[uint32]bool{1: true, 2: true}, []namespace.Tag{a, b},
		},
		"a transaction that keeps the turnstile": {
			[]cycleWait{{1, a}, {2, b}}, map[uint32][]namespace.Tag{1: {a, b}, 2: {a, b, gate}}, map[uint32]bool{1: true, 2: true}, []namespace.Tag{a, b},
		},
		"SQL by hand that touched no table": {
			[]cycleWait{{1, a}, {2, b}}, map[uint32][]namespace.Tag{1: {a, b}, 2: {a, b}}, map[uint32]bool{1: true}, []namespace.Tag{a, b},
		},
		"a connection that carries the lock": {
			[]cycleWait{{1, a}, {2, b}}, map[uint32][]namespace.Tag{1: {a, b}, 2: {a, b, gate}}, map[uint32]bool{1: true}, nil,
		},
		"a connection that carries the lock and waits for a turnstile": {
			[]cycleWait{{1, a}, {2, gate}, {3, b}}, map[uint32][]namespace.Tag{1: {a, b}, 2: {a, gate}, 3: {b, gate}}, map[uint32]bool{1: true}, nil,
		},
		"a transaction behind a connection's turnstile": {
			[]cycleWait{{1, a}, {2, gate}, {3, b}}, map[uint32][]namespace.Tag{1: {a, b}, 2: {a, gate}, 3: {b, gate}}, map[uint32]bool{1: true, 2: true}, []namespace.Tag{a, b, b},
		},
		"this transaction behind a connection's turnstile": {
			[]cycleWait{{1, gate}, {2, b}, {3, a}}, map[uint32][]namespace.Tag{1: {a, gate}, 2: {b, gate}, 3: {a, b}}, map[uint32]bool{1: true, 3: true}, []namespace.Tag{b, b, a},
		},
	} {
		parties := map[uint32]*party{}
		for pid, tags := range c.locks {
			parties[pid] = newParty()
			parties[pid].relation = c.in[pid]
			for _, tag := range tags {
				parties[pid].note(lockRow{Class: tag.ClassID, Object: tag.ObjID, Form: tag.ObjSubID})
			}
		}
		var got []namespace.Tag
		for _, step := range judgeCycle(c.waits, parties) {
			got = append(got, step.Tag)
		}
		require.Equal(t, c.want, got, name)
	}
}
