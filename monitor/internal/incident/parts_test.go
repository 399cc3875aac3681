package incident_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor/internal/incident"
	"github.com/pglatch/pglatch/namespace"
)

// parts is a process with Lockers, elections and shards, of the service billing and of another one.
func parts(other string) *world {
	w := newWorld()
	a := w.process("a", 901)
	w.holds("a", 1, key(1, 7))
	w.holds("a", 2, key(1, 8)).Service = other
	w.row(3, "a", key(9, 100), true)
	a.Waits = append(a.Waits, introspect.Wait{Key: "order/8", Tag: key(1, 8), Service: other})
	a.Elections = append(a.Elections, introspect.Election{Name: "jobs", Key: "9:100", Tags: []namespace.Tag{key(9, 100)}, Node: "n", State: "leader", Session: 3, Service: other})
	a.Groups = append(a.Groups, introspect.Group{Name: "tenant=5", Number: 5, Members: key(5, 0), Session: 4, Node: "n", Service: other})
	w.row(4, "a", key(5, 0), true)
	return w.look(0)
}

func TestEachRowOfAProcessNamesTheServiceOfItsPart(t *testing.T) {
	t.Parallel()
	seen := func(w *world) map[string]string {
		all := map[string]string{}
		for _, k := range w.last.Keys {
			require.Len(t, k.Holders, 1, k.Text)
			all[k.Text] = k.Holders[0].Who() + ", " + k.Holders[0].Place()
			for _, waiter := range k.Waiters {
				all["wait "+k.Text] = waiter.Who()
			}
		}
		all["candidate"] = w.last.Elections[0].Members[0].Who()
		return all
	}
	const other = "a (report), report, process 4711 on web-a"
	assert.Equal(t, map[string]string{
		"order/7": "a (billing), billing v1.2.3, process 4711 on web-a", "order/8": other, "wait order/8": "a (report)",
		"jobs (9:100)": other, "candidate": "a (report)", "members of tenant=5": other,
	}, seen(parts("report")))

	const one = "a, billing v1.2.3, process 4711 on web-a"
	assert.Equal(t, map[string]string{
		"order/7": one, "order/8": one, "wait order/8": "a", "jobs (9:100)": one, "candidate": "a", "members of tenant=5": one,
	}, seen(parts("")), "control: of one service, or of a version that does not name the services of parts")
}

func TestNamesOfServicesAreMadeLegible(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "a (re?port)", parts("re\nport").last.Elections[0].Members[0].Who())
}

func TestAProcessThatBecomesSilentKeepsTheServicesOfItsParts(t *testing.T) {
	t.Parallel()
	w := parts("report")
	w.silence("a")
	w.process("b", 902)
	w.waits("b", 5, key(1, 8))
	w.looks()
	for _, v := range w.found {
		if v.Key == "order/8" && v.Name == incident.HolderSilent {
			assert.Contains(t, v.Text, "a (report) holds order/8")
			return
		}
	}
	t.Error(w.found)
}
