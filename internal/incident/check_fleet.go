package incident

import (
	"fmt"
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/legible"
)

func twoLeaders(m *Memory, p *Picture) (all []Verdict) {
	for _, e := range p.Elections {
		leaders := e.Leaders()
		if len(leaders) < 2 || m.lasting("leaders/"+e.ID, p.At) < m.limits.Confirm {
			continue // one may have answered before it stepped down, the other after it won
		}
		v := about(e, TwoLeaders, Critical, fmt.Sprintf("%d nodes answer as leader of %s.", len(leaders), e.Name))
		v.Who = nil
		for _, l := range leaders {
			v.concerns(l.Node)
			v.Evidence = append(v.Evidence, fmt.Sprintf("%s (%s) leads for %s, term %s, session %d", l.Node, l.Who(), Age(l.Age), or(l.Term, "unknown"), l.Session))
		}
		v.Advice = "Stop one now. Then find out why: two databases or keys under one name, a pooler in between, or a lease backend whose clock was set."
		all = append(all, v)
	}
	return all
}

func about(e *Election, name string, s Severity, text string) Verdict {
	v := Verdict{Name: name, Severity: s, Key: e.Key, KeyID: e.ID, Text: text, Subject: e.Name, Waiters: len(e.Members)}
	for _, m := range e.Members {
		v.concerns(m.Node)
	}
	return v
}

func or(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

func noLeader(m *Memory, p *Picture) (all []Verdict) {
	for _, e := range p.Elections {
		awaited := slices.ContainsFunc(e.Members, func(m Member) bool { return m.State != "stopped" })
		if len(e.Leaders()) > 0 || !awaited {
			continue
		}
		if _, left := e.SilentLeader(p.At); left > 0 {
			continue // as far as known it leads; its silence is a separate verdict
		}
		lasted := m.lasting("leaderless/"+e.ID, p.At)
		if lasted < m.limits.Confirm {
			continue
		}
		v := about(e, NoLeader, Critical, fmt.Sprintf("Nobody leads %s for %s.", e.Name, Age(lasted)))
		for _, c := range e.Members {
			line := fmt.Sprintf("%s (%s): %s for %s", c.Node, c.Who(), c.State, Age(c.Age))
			if c.Process.Silent {
				line = fmt.Sprintf("%s (%s): silent", c.Node, c.Who())
			}
			if c.Err != "" {
				line += ": " + c.Err
			}
			v.Evidence = append(v.Evidence, line)
		}
		v.Advice = "Read each candidate's error. If a node was cut off or stopped, another one leads when its session ends (LeaseDuration)."
		switch {
		case e.Holder == nil:
			v.Evidence = append(v.Evidence, "nobody holds its lock")
		default:
			v.Evidence = append(v.Evidence, fmt.Sprintf("its lock is held by %s for %s: %s", e.Holder.Who(), Age(e.Holder.Age), e.Holder.describe()))
			v.Advice = "The holder of its lock does not lead: it is silent, still taking over, or not a candidate. " + v.Advice
		}
		all = append(all, v)
	}
	return all
}

// electionClashes finds elections of different names on one key.
func electionClashes(_ *Memory, p *Picture) (all []Verdict) {
	for _, e := range p.Elections {
		if len(e.Names) < 2 {
			continue
		}
		v := about(e, ElectionClash, Critical, fmt.Sprintf("The elections %s have one key, %s: one of them leads, and the others never do.", e.Name, e.Key))
		for _, name := range e.Names {
			i := slices.IndexFunc(e.Members, func(m Member) bool { return m.Name == name })
			v.Evidence = append(v.Evidence, fmt.Sprintf("%s (%s) calls it %s", e.Members[i].Node, e.Members[i].Who(), name))
		}
		v.Advice = "Give each election a key of its own. A renamed election appears here as long as old and new replicas run."
		all = append(all, v)
	}
	return all
}

func cannotConnect(m *Memory, p *Picture) (all []Verdict) {
	for _, e := range p.Elections {
		for _, c := range e.Members {
			if c.Err == "" || c.State == "leader" || c.State == "stopped" || c.Process.Silent {
				continue
			}
			if m.lasting("cannot/"+e.ID+"/"+c.Process.ID+"/"+c.Node, p.At) < m.limits.Confirm {
				continue
			}
			v := about(e, CannotConnect, Warning, fmt.Sprintf("%s cannot take part in the election %s.", c.Node, e.Name))
			v.Subject, v.Evidence, v.Who = e.Name+" "+c.Node, []string{c.Err, place(c.Process.as(c.Service))}, []string{c.Node}
			v.Advice = "This node could not succeed the leader. Its error says what is missing: password, rights, table, network, or connections."
			all = append(all, v)
		}
	}
	return all
}

func clashes(_ *Memory, p *Picture) (all []Verdict) {
	for _, c := range p.Clashes {
		v := Verdict{
			Name: NameClash, Severity: Critical, Subject: number(c.Number),
			Text:   fmt.Sprintf("The namespaces %s have one number, %d: their keys are the same locks.", list(c.Names), c.Number),
			Advice: "Give each namespace a number of its own. Until then, unrelated parts of your programs exclude each other. A renamed namespace appears here during the deploy.",
		}
		for _, k := range p.Keys {
			if n, ok := k.Tag.NamespaceNumber(); ok && n == c.Number {
				v.links(k)
			}
		}
		for i, name := range c.Names {
			v.concerns(c.Whose[i])
			v.Evidence = append(v.Evidence, c.Whose[i]+" calls it "+name)
		}
		all = append(all, v)
	}
	return all
}

func silentProcesses(m *Memory, p *Picture) (all []Verdict) {
	holds := map[*Process]bool{}
	for _, k := range p.Keys {
		for _, h := range k.Holders {
			holds[h.Process] = true
		}
	}
	for _, proc := range p.Processes {
		quiet, ok := m.quiet(proc)
		if !ok || holds[proc] {
			continue // a separate verdict reports its locks
		}
		all = append(all, Verdict{
			Name: ProcessSilent, Severity: Warning, Subject: proc.Name, Who: []string{proc.Name}, Text: fmt.Sprintf("%s has not answered for %s.", proc.Name, Age(quiet)),
			Evidence: []string{place(proc), "its connection is there: session " + number(proc.Listener)},
			Advice:   "The process is stopped, cut off or gets no CPU time. It holds no known lock.",
		})
	}
	return all
}

func lockTable(m *Memory, p *Picture) []Verdict {
	used := share(p.Server.Locks, p.Server.LockRoom)
	if used < m.limits.LockTable {
		return nil
	}
	s := Warning
	if used > 0.9 {
		s = Critical
	}
	v := Verdict{
		Name: LockTable, Severity: s, Text: fmt.Sprintf("The lock table is %.0f %% full.", 100*used),
		Evidence: []string{legible.Number(p.Server.Locks) + " of " + legible.Number(p.Server.LockRoom) + " entries are taken, by advisory and other locks of all databases"},
		Advice:   "When the table is full, every query on the server fails. Check the sessions with the most entries; raise max_locks_per_transaction (needs a restart); lower MaxLocks.",
	}
	who := map[uint32]string{}
	for _, k := range p.Keys {
		for _, h := range k.Holders {
			who[h.PID] = h.Who()
		}
	}
	for _, t := range p.Server.Takers {
		name := or(who[t.PID], or(t.Name, "a session without a name"))
		line := fmt.Sprintf("%s has %s of them: session %d of database %s", name, legible.Number(t.Locks), t.PID, or(t.Database, "unknown"))
		if t.PID == 0 {
			name, line = "prepared transactions", "prepared transactions have "+legible.Number(t.Locks)+" of them"
		}
		v.concerns(name)
		v.Evidence = append(v.Evidence, line)
	}
	return []Verdict{v}
}

func connections(m *Memory, p *Picture) []Verdict {
	used := share(p.Server.Connections, p.Server.ConnLimit)
	if used < m.limits.Connect {
		return nil
	}
	return []Verdict{{
		Name: Connections, Severity: Warning, Text: fmt.Sprintf("%d of %d connections are in use.", p.Server.Connections, p.Server.ConnLimit),
		Evidence: []string{"max_connections, without those that are reserved"},
		Advice:   "New connections are refused: programs cannot take locks or follow elections. Lower pools (MaxConns), put many locks on a connection (LocksPerConn), or raise max_connections.",
	}}
}

func share(part, whole int) float64 {
	if whole <= 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

func standby(_ *Memory, p *Picture) []Verdict {
	if !p.Server.Standby {
		return nil
	}
	return []Verdict{{
		Name: Standby, Severity: Warning, Text: "This is a standby.",
		Evidence: []string{"pg_is_in_recovery() is true: its locks exclude nobody on the primary, and processes cannot be asked through it"},
		Advice:   "Point the monitor, and every program that takes locks, at the primary.",
	}}
}

func clocks(m *Memory, p *Picture) []Verdict {
	type clock struct {
		host  string
		ahead time.Duration // of the server's clock
	}
	var hosts []clock
	for _, proc := range p.Processes {
		known := slices.ContainsFunc(hosts, func(c clock) bool { return c.host == proc.Host })
		if proc.Silent || known || proc.ClockError > m.limits.Clock {
			continue
		}
		ahead := proc.Clock
		switch { // the clock was read between the question and the answer
		case ahead > 0:
		case -ahead <= proc.ClockError:
			ahead = 0
		default:
			ahead += proc.ClockError
		}
		hosts = append(hosts, clock{proc.Host, ahead})
	}
	v := Verdict{
		Name: Clocks, Severity: Note, Text: "Clocks differ.",
		Advice: "No lock depends on it, but times in logs do not match, and PostgreSQL's own timeouts fire late or early when its clock is set. Configure time synchronization to slew the clocks (chrony).",
	}
	for _, c := range hosts {
		if c.ahead.Abs() < m.limits.Clock {
			continue
		}
		word := "ahead of"
		if c.ahead < 0 {
			word = "behind"
		}
		v.Evidence = append(v.Evidence, fmt.Sprintf("%s is %s %s PostgreSQL's host", c.host, Age(c.ahead.Abs()), word))
		v.concerns(c.host)
	}
	if len(v.Evidence) == 0 {
		return nil
	}
	return []Verdict{v}
}
