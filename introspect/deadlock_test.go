package introspect_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

var order = namespace.Must(7, "order")

// waits is a wait for one order of a caller who holds others.
func waits(id uint64, since time.Duration, want int64, holds ...int64) introspect.Wait {
	w := introspect.Wait{ID: id, Key: order.ID(want).String(), Tag: order.ID(want).Tag(), Age: since}
	for _, h := range holds {
		w.Holds = append(w.Holds, order.ID(h).Tag())
	}
	return w
}

func process(id string, all ...introspect.Wait) introspect.Answer {
	return introspect.Answer{Process: introspect.Process{ID: id, Service: id, Host: "host", PID: 1}, Waits: all}
}

func TestACycleThroughProcessesIsFoundAndNamed(t *testing.T) {
	t.Parallel()
	a := introspect.Answers{Answers: []introspect.Answer{
		process("a", waits(1, 3*time.Second, 2, 1), waits(2, time.Second, 9)),
		process("b", waits(1, 2*time.Second, 3, 2, 8)),
		process("c", waits(5, 4*time.Second, 1, 3), waits(6, time.Second, 8, 9)), // 9 waits for nobody who waits
	}}
	cycles := a.Cycles()
	require.Len(t, cycles, 1)
	require.Len(t, cycles[0], 3)
	require.Equal(t, "b", cycles[0].Youngest().Process.ID)
	require.Equal(t, "a@host (1) waits for order/2, which b@host (1) holds, which waits for order/3, which c@host (1) holds, which waits for order/1, which a@host (1) holds",
		cycles[0].String())
	require.True(t, cycles[0].Same(a.Cycles()[0]))
	a.Answers[1].Waits[0].ID = 2
	require.False(t, cycles[0].Same(a.Cycles()[0]), "another wait")
}

func TestWhatEndsByItselfIsNoCycle(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]introspect.Answers{
		"a chain": {Answers: []introspect.Answer{process("a", waits(1, 1, 2, 1)), process("b", waits(1, 1, 3, 2)), process("c")}},
		"readers": {Answers: []introspect.Answer{
			{Process: introspect.Process{ID: "a"}, Locks: []introspect.Lock{{Tag: order.ID(1).Tag(), Shared: true}}, Waits: []introspect.Wait{shared(waits(1, 1, 2, 1))}},
			{Process: introspect.Process{ID: "b"}, Locks: []introspect.Lock{{Tag: order.ID(2).Tag(), Shared: true}}, Waits: []introspect.Wait{shared(waits(1, 1, 1, 2))}},
		}},
		"a semaphore": {Answers: []introspect.Answer{process("a", semaphore(waits(1, 1, 2, 1))), process("b", waits(1, 1, 1, 2))}},
	} {
		require.Empty(t, a.Cycles(), name)
	}
	a := introspect.Answers{Answers: []introspect.Answer{
		{Process: introspect.Process{ID: "a"}, Locks: []introspect.Lock{{Tag: order.ID(1).Tag(), Shared: true}}, Waits: []introspect.Wait{waits(1, 1, 2, 1)}},
		{Process: introspect.Process{ID: "b"}, Locks: []introspect.Lock{{Tag: order.ID(2).Tag(), Shared: true}}, Waits: []introspect.Wait{waits(1, 1, 1, 2)}},
	}}
	require.Len(t, a.Cycles(), 1, "a control: readers that become writers")
}

func shared(w introspect.Wait) introspect.Wait    { w.Shared = true; return w }
func semaphore(w introspect.Wait) introspect.Wait { w.Semaphore = true; return w }
