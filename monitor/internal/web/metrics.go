package web

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/pglatch/pglatch/internal/incident"
)

// severities are those that a verdict can have.
var severities = []incident.Severity{incident.Critical, incident.Warning, incident.Note}

// metrics are gauges of some databases in the text format of Prometheus.
type metrics struct{ up, verdicts, unread, free, missed, stored, servers, leases, waiters strings.Builder }

// escaped makes text fit for the value of a label.
var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// add adds a database; state is nil if it does not answer.
func (m *metrics) add(database string, state *State) {
	database = escaped.Replace(database)
	if state == nil {
		fmt.Fprintf(&m.up, "pglatch_monitor_up{database=\"%s\"} 0\n", database)
		return
	}
	fmt.Fprintf(&m.up, "pglatch_monitor_up{database=\"%s\"} 1\n", database)
	type kind struct {
		name     string
		severity incident.Severity
	}
	counts := map[kind]int{}
	for i := range state.Verdicts {
		v := &state.Verdicts[i]
		counts[kind{v.Name, v.Severity}]++
		for j := range v.Consequences { // a verdict that is folded is not over
			counts[kind{v.Consequences[j].Name, v.Consequences[j].Severity}]++
		}
	}
	for _, name := range incident.Names() {
		for _, severity := range severities {
			fmt.Fprintf(&m.verdicts, "pglatch_verdict{name=%q,severity=%q,database=\"%s\"} %d\n", name, severity, database, counts[kind{name, severity}])
		}
	}
	if state.Tables {
		unread := 1
		if state.Fleet != nil {
			unread = len(state.Fleet.Problems)
		}
		fmt.Fprintf(&m.unread, "pglatch_tables_unread{database=\"%s\"} %d\n", database, unread)
	}
	if state.Fleet == nil {
		return
	}
	for i := range state.Fleet.Groups {
		g := &state.Fleet.Groups[i]
		fmt.Fprintf(&m.free, "pglatch_shards_free{group=\"%s\",database=\"%s\"} %d\n", escaped.Replace(g.Name), database, g.Shards-g.Owned)
	}
	for i := range state.Fleet.Jobs {
		j := &state.Fleet.Jobs[i]
		fmt.Fprintf(&m.missed, "pglatch_ticks_missed{job_name=\"%s\",database=\"%s\"} %d\n", escaped.Replace(j.Name), database, len(j.Missed))
	}
	if len(state.Fleet.Leases) == 0 { // perhaps the database is no store
		return
	}
	leases := map[string]int{}
	for i := range state.Fleet.Leases {
		leases[strings.ToLower(state.Fleet.Leases[i].State)]++
	}
	for _, state := range []string{"held", "expired"} {
		fmt.Fprintf(&m.stored, "pglatch_leases{database=\"%s\",state=\"%s\"} %d\n", database, state, leases[state])
	}
}

// addServer adds a lock server.
func (m *metrics) addServer(s serverView) {
	name := escaped.Replace(s.Name)
	if s.Why != "" {
		fmt.Fprintf(&m.servers, "pglatch_lock_server_up{server=\"%s\"} 0\n", name)
		return
	}
	fmt.Fprintf(&m.servers, "pglatch_lock_server_up{server=\"%s\"} 1\n", name)
	for _, state := range []struct {
		name string
		n    int
	}{{"held", s.Held}, {"expired", s.Expired}} {
		fmt.Fprintf(&m.leases, "pglatch_lock_server_leases{server=\"%s\",state=\"%s\"} %d\n", name, state.name, state.n)
	}
	if s.Waiters != nil {
		fmt.Fprintf(&m.waiters, "pglatch_lock_server_waiters{server=\"%s\"} %d\n", name, *s.Waiters)
	}
}

// write answers with the metrics. A metric without a series is left out.
func (m *metrics) write(w http.ResponseWriter) {
	var b strings.Builder
	for _, metric := range []struct {
		name, help string
		series     *strings.Builder
	}{
		{"pglatch_monitor_up", "1 if the database answers the monitor.", &m.up},
		{"pglatch_verdict", "What is wrong with the locks of the database, by name and severity.", &m.verdicts},
		{"pglatch_tables_unread", "Problems of reading the tables of shards, ticks, turns and leases; 0 = all were read.", &m.unread},
		{"pglatch_shards_free", "Shards of the group that nobody owns.", &m.free},
		{"pglatch_ticks_missed", "Ticks among the newest of the job that nobody ran, if its ticks are equally far apart.", &m.missed},
		{"pglatch_leases", "Leases in the tables of the database, by state, among the first 1,000.", &m.stored},
		{"pglatch_lock_server_up", "1 if the lock server answers the monitor.", &m.servers},
		{"pglatch_lock_server_leases", "Leases of the lock server, by state, among the first 1,000.", &m.leases},
		{"pglatch_lock_server_waiters", "Requests that wait for a lease of the lock server, of the first 1,000.", &m.waiters},
	} {
		if metric.series.Len() > 0 {
			fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %[1]s gauge\n%[3]s", metric.name, metric.help, metric.series.String())
		}
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write([]byte(b.String())) // the client may have left
}
