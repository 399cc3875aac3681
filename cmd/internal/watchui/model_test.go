package watchui_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/cmd/internal/watchui"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/monitor/fleet"
	"github.com/pglatch/pglatch/namespace"
)

// rows are keys order/0 … order/n-1, each held for a minute longer than the one before.
func rows(n int) []*overview.Row {
	all := make([]*overview.Row, n)
	for i := range all {
		all[i] = &overview.Row{
			Key: fmt.Sprintf("order/%d", i), Kind: overview.Lock, Tag: namespace.Pair(2, int32(i)).Tag(),
			Holders: []overview.Party{{Name: "billing@web-3:4711", PID: uint32(100 + i), Age: time.Duration(i+1) * time.Minute, Exact: true, Label: "nightly"}},
		}
	}
	return all
}

func model(width, height int, all []*overview.Row) *watchui.Model {
	m := &watchui.Model{Interval: time.Second, Sort: overview.ByKey}
	m.Resize(width, height)
	m.Show(watchui.Data{Database: "shop", At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Rows: all})
	return m
}

func press(t *testing.T, m *watchui.Model, keys ...string) {
	t.Helper()
	for _, key := range keys {
		require.False(t, m.Press(key), key)
	}
}

func lines(m *watchui.Model) (all []string) {
	for _, l := range m.View() {
		all = append(all, l.String())
	}
	return all
}

// under is the key under the cursor.
func under(m *watchui.Model) string {
	for _, l := range m.View() {
		if len(l) > 0 && l[0].Style == watchui.Selected {
			return l[0].Text
		}
	}
	return ""
}

func TestTheScreenIsAsLargeAsTheTerminal(t *testing.T) {
	t.Parallel()
	for _, size := range [][2]int{{20, 4}, {40, 5}, {80, 24}, {200, 60}, {20, 100}} {
		m := model(size[0], size[1], rows(30))
		for _, keys := range [][]string{nil, {"End"}, {"Enter"}, {"End"}} {
			press(t, m, keys...)
			all := lines(m)
			assert.Len(t, all, size[1])
			for _, l := range all {
				assert.LessOrEqual(t, len([]rune(l)), size[0], l)
			}
		}
	}
	for _, size := range [][2]int{{0, 0}, {1, 1}, {19, 50}, {80, 3}} {
		m := model(size[0], size[1], rows(30))
		press(t, m, "Down", "End", "PgUp", "Enter", "Down", "Esc", "/", "x")
		assert.Len(t, m.View(), 1)
	}
}

func TestNarrowTerminalsKeepWhatMatters(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"KEY", "MODE", "HOLDER", "HELD", "WAITERS", "LONGEST", "PID", "LABEL"}, strings.Fields(lines(model(100, 10, rows(3)))[1]))
	assert.Equal(t, []string{"KEY", "HOLDER", "HELD", "WAITERS", "LONGEST"}, strings.Fields(lines(model(48, 10, rows(3)))[1]))
	narrow := lines(model(24, 10, rows(3)))
	assert.Equal(t, []string{"KEY", "HOLDER"}, strings.Fields(narrow[1]))
	assert.Equal(t, "order/0  billing@web-3:…", narrow[2], "cut, and said so")
}

func TestTheHeaderStaysAndTheCursorIsSeen(t *testing.T) {
	t.Parallel()
	m := model(80, 10, rows(30))
	seen := map[string]bool{}
	for range 40 {
		all := lines(m)
		assert.True(t, strings.HasPrefix(all[1], "KEY"), all[1])
		require.NotEmpty(t, under(m))
		seen[under(m)] = true
		press(t, m, "Down")
	}
	assert.Len(t, seen, 30)
	for keys, want := range map[string]string{"Home": "order/0", "End": "order/29", "Home PgDn": "order/7", "End PgUp": "order/22", "Home Up": "order/0", "End k": "order/28"} {
		press(t, m, strings.Fields(keys)...)
		assert.Equal(t, want, under(m), keys)
	}
}

func TestSPassesThroughTheOrders(t *testing.T) {
	t.Parallel()
	m := model(80, 10, rows(5))
	assert.Equal(t, "order/0", under(m))
	press(t, m, "s")
	assert.Contains(t, lines(m)[9], "sort: trouble")
	assert.Equal(t, "order/4", under(m), "the oldest hold, as nobody waits")
	press(t, m, "s", "s", "s", "s")
	assert.Contains(t, lines(m)[9], "sort: key")
	assert.Equal(t, "order/0", under(m))
}

func TestASlashFiltersWhileItIsTyped(t *testing.T) {
	t.Parallel()
	m := model(80, 10, rows(30))
	press(t, m, "/", "R", "/", "2", "9", "x")
	assert.Contains(t, lines(m)[2], "nothing matches")
	press(t, m, "Backspace")
	assert.Equal(t, "order/29", under(m))
	assert.Empty(t, lines(m)[3])
	assert.Contains(t, lines(m)[9], "filter: R/29_")
	press(t, m, "Enter", "s") // q and s are keys again
	assert.Contains(t, lines(m)[9], "filter: R/29  (esc drops it)")
	press(t, m, "Esc")
	assert.Contains(t, lines(m)[3], "order/", "all are back")
	press(t, m, "/", "q", "s", "Esc")
	assert.Contains(t, lines(m)[3], "order/", "esc drops what was typed")
}

func TestAnOpenKeyIsShownUntilItIsLeft(t *testing.T) {
	t.Parallel()
	all := rows(3)
	all[1].Waiters = []overview.Party{{Name: "shop@web-1:9", Age: time.Hour, Exact: true, Process: nil, PID: 7, Label: "export"}}
	m := model(120, 30, all)
	press(t, m, "Down", "Enter")
	text := strings.Join(lines(m), "\n")
	for _, part := range []string{
		"order/1, exclusive", "backend 101 (billing@web-3:4711), exclusive, for 2m0s, label nightly", "waited for by 1", "for 1h0m, label export",
		"pglatch ask order/1", "pglatch dump order/1", "pglatch terminate 101",
	} {
		assert.Contains(t, text, part)
	}
	m.Show(watchui.Data{Rows: rows(1)})
	assert.Contains(t, strings.Join(lines(m), "\n"), "the key is free by now")
	press(t, m, "Esc")
	assert.Equal(t, "order/0", under(m))
}

func TestALongKeyIsScrolled(t *testing.T) {
	t.Parallel()
	all := rows(1)
	for i := range 50 {
		all[0].Waiters = append(all[0].Waiters, overview.Party{Name: fmt.Sprintf("waiter-%d", i), PID: 1})
	}
	m := model(80, 12, all)
	press(t, m, "Enter")
	assert.NotContains(t, strings.Join(lines(m), "\n"), "waiter-49")
	press(t, m, "End")
	assert.Contains(t, strings.Join(lines(m), "\n"), "pglatch terminate", "the end")
	press(t, m, "PgUp")
	assert.Contains(t, strings.Join(lines(m), "\n"), "waiter-47")
	press(t, m, "Home")
	assert.Contains(t, strings.Join(lines(m), "\n"), "order/0, exclusive")
}

func TestTheCursorStaysWithItsKey(t *testing.T) {
	t.Parallel()
	m := model(80, 10, rows(5))
	press(t, m, "Down", "Down")
	require.Equal(t, "order/2", under(m))
	m.Show(watchui.Data{Rows: rows(5)[1:]})
	assert.Equal(t, "order/2", under(m))
	m.Show(watchui.Data{Rows: rows(2)})
	assert.Equal(t, "order/0", under(m), "it is gone")
	m.Show(watchui.Data{})
	assert.Contains(t, lines(m)[2], "nothing is locked")
}

func TestAFailureIsShownOverWhatWasSeenLast(t *testing.T) {
	t.Parallel()
	m := model(80, 10, rows(2))
	m.Show(watchui.Data{Err: errors.New("connection refused\x1b[31m")})
	all := lines(m)
	assert.Equal(t, "nothing seen since 03:04:05: connection refused?[31m", all[0])
	assert.Contains(t, all[2], "order/0")
	m.Show(watchui.Data{Database: "shop", Rows: rows(1), Silent: []string{"billing@web-3"}})
	assert.Contains(t, lines(m)[0], "1 keys, 0 waited for  1 silent: billing@web-3")
}

func TestWhatIsWrongIsSaidOverTheKeysAndWithItsKey(t *testing.T) {
	t.Parallel()
	m := model(120, 20, nil)
	m.Show(watchui.Data{Database: "shop", Rows: rows(2), Verdicts: []monitor.Verdict{
		{Name: "holder-silent", Severity: "critical", Key: "order/0", Text: "Its holder does not answer.", Advice: "End its session."},
		{Name: "standby", Severity: "note"},
	}})
	assert.Contains(t, lines(m)[0], "0 waited for  holder-silent order/0")
	assert.NotContains(t, lines(m)[0], "standby")
	press(t, m, "Enter")
	assert.Contains(t, strings.Join(lines(m), "\n"), "holder-silent: Its holder does not answer.\n  End its session.")
	press(t, m, "Esc", "Down", "Enter")
	assert.NotContains(t, strings.Join(lines(m)[1:], "\n"), "holder-silent")
}

func TestQAndCtrlCQuitEverywhere(t *testing.T) {
	t.Parallel()
	for _, keys := range [][]string{{"q"}, {"Ctrl+C"}, {"Enter", "q"}, {"Enter", "Ctrl+C"}, {"/", "Ctrl+C"}, {"/", "q", "Enter", "q"}} {
		m := model(80, 10, rows(3))
		last := len(keys) - 1
		press(t, m, keys[:last]...)
		assert.True(t, m.Press(keys[last]), keys)
	}
}

func TestMostBoundsTheKeys(t *testing.T) {
	t.Parallel()
	m := &watchui.Model{Sort: overview.ByKey, Most: 2}
	m.Resize(80, 10)
	m.Show(watchui.Data{Rows: rows(5)})
	press(t, m, "End")
	assert.Equal(t, "order/1", under(m))
}

func TestTheFleetIsAKeyAway(t *testing.T) {
	t.Parallel()
	m := &watchui.Model{}
	m.Resize(100, 12)
	m.Show(watchui.Data{Fleet: overview.Fleet(&fleet.Fleet{
		Groups: []fleet.Group{{Name: "tenant=7", Shards: 3, Owned: 2, Nodes: []fleet.Node{{Identity: "web-3\x1b[31m", Owned: 2, Fair: 2, Drained: true}}}},
		Leases: []fleet.Lease{{Name: "printer", State: "EXPIRED", Holder: "kiosk-1", Token: 7}},
	})})
	m.Press("f")
	text := func() (all string) {
		for _, l := range m.View() {
			all += l.String() + "\n"
		}
		return all
	}
	for _, want := range []string{`tenant=7 +web-3\?\[31m +2 +2 +0 +draining`, `tenant=7 +nobody +1 +0`, `printer +expired +kiosk-1 +7`} {
		assert.Regexp(t, want, text())
	}
	m.Press("Down")
	m.Press("Esc")
	assert.Contains(t, text(), "nothing is locked")
}
