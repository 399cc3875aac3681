package incident

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/legible"
)

func deadlocks(m *Memory, p *Picture) (all []Verdict) {
	for _, c := range p.Cycles {
		keys := c.Keys()
		ids := make([]string, len(keys))
		for i, k := range keys {
			ids[i] = k.ID
		}
		slices.Sort(ids)
		// Answers are from slightly different moments. The cycle must be there again, and all waits must be
		// older than that time.
		young := slices.ContainsFunc(c.Steps, func(s Step) bool { return s.Age < m.limits.Confirm })
		if m.lasting("cycle/"+strings.Join(ids, ","), p.At) < m.limits.Confirm || young {
			continue
		}
		var who, evidence []string
		for _, s := range c.Steps {
			name := s.Who
			if s.Label != "" {
				name += " (" + s.Label + ")"
			}
			if !slices.Contains(who, s.Who) {
				who = append(who, s.Who)
			}
			line := name
			if s.Holds != nil {
				line += " holds " + s.Holds.Text + " and"
			}
			line += fmt.Sprintf(" has waited %s for %s", Age(s.Age), s.Wants.Text)
			evidence = append(evidence, line)
		}
		v := of(keys[0], Deadlock, Critical, "", evidence...)
		v.KeyID, v.Subject, v.also, v.Who = ids[0], strings.Join(ids, ","), ids, nil
		v.concerns(who...)
		v.Waiters = 0 // all that stand behind it
		for _, k := range keys {
			v.Waiters += len(k.Waiters)
		}
		names := make([]string, len(keys))
		for i, k := range keys {
			names[i] = k.Text
		}
		v.Key = strings.Join(names, ", ")
		v.Text = fmt.Sprintf("Deadlock: %s wait for each other.", list(who))
		if len(who) == 1 {
			v.Text = fmt.Sprintf("Deadlock inside %s.", who[0])
		}
		v.Advice = giveUp(c) + " Then take these keys in one order everywhere, or together (AcquireAll). advisory.Config.BreakDeadlocks ends the youngest wait automatically."
		all = append(all, v)
	}
	return all
}

// giveUp describes how a cycle ends.
func giveUp(c Cycle) string {
	for _, s := range c.Steps {
		if s.Process == nil && s.PID != 0 {
			return fmt.Sprintf("None of them continues until one gives up. End session %d, for which no process answers: pglatch terminate %d.", s.PID, s.PID)
		}
	}
	return "None of them continues until one gives up: at its timeout, when pglatch ask reaches it and its program allows that, or when you stop its program."
}

func heldLong(m *Memory, p *Picture) (all []Verdict) {
	var idle []string // those without waiters
	idlers := Verdict{Name: HeldLong, Severity: Note, Advice: "If that is intended, nothing is wrong. A lock that is kept by mistake appears here first."}
	for _, k := range p.Keys {
		age := k.Since()
		if k.Leads() || len(k.Holders) == 0 {
			continue
		}
		usual, known := m.usual(k)
		long := known && age > m.limits.AtLeast && float64(age) > m.limits.Factor*float64(usual) && len(k.Waiters) > 0
		if !long && age < m.limits.Long {
			continue
		}
		h := oldest(k)
		if len(k.Waiters) == 0 {
			idle = append(idle, fmt.Sprintf("%s holds %s for %s", h.Who(), k.Text, Age(age)))
			idlers.concerns(h.Who())
			idlers.links(k)
			continue
		}
		v := of(k, HeldLong, Warning, fmt.Sprintf("%s has held %s for %s.", h.Who(), k.Text, Age(age)), h.describe(), waits(k))
		if !h.Exact {
			v.Evidence = append(v.Evidence, "the exact time is not known: no process answers for the holder, and the monitor first saw the lock then")
		}
		if known {
			v.Evidence = append(v.Evidence, "most holds of it were shorter than "+Age(max(usual, 100*time.Millisecond)))
		}
		if len(h.Labels) > 0 {
			v.Evidence = append(v.Evidence, "it does: "+h.Labels[0])
		}
		if k.HandOvers > 0 {
			v.Evidence = append(v.Evidence, Count(int(k.HandOvers), "hand-over", "hand-overs")+" inside the process since then: it is at work")
		}
		v.Advice = "Check what the holder is doing. If it hangs, ask it to release the key (pglatch ask), or stop its program, which releases the key."
		if h.Process == nil && !h.Prepared {
			v.Advice = fmt.Sprintf("No process answers for the holder. Find out what it is doing; pglatch terminate %d shows what ends with its session.", h.PID)
		}
		all = append(all, v)
	}
	if len(idle) > 0 {
		idlers.Text, idlers.Evidence = fmt.Sprintf("%s held for more than %s, and nobody waits.", Count(len(idle), "key is", "keys are"), Age(m.limits.Long)), few(idle)
		all = append(all, idlers)
	}
	return all
}

// few returns the first of many lines.
func few(lines []string) []string {
	const enough = 3
	if len(lines) <= enough+1 {
		return lines
	}
	return append(slices.Clone(lines[:enough]), fmt.Sprintf("and %d more", len(lines)-enough))
}

func oldest(k *Key) *Holder {
	return slices.MaxFunc(k.Holders, func(a, b *Holder) int { return int(a.Age - b.Age) })
}

func silentHolders(m *Memory, p *Picture) (all []Verdict) {
	const advice = "The process is stopped, cut off or gets no CPU time. The server frees the key when the session ends: after SessionTTL, or at once with pg_terminate_backend. When the process resumes, it may continue until it checks its context."
	elections := map[string]*Election{} // by the IDs of their deciding keys
	for _, e := range p.Elections {
		elections[e.ID] = e
	}
	idle := map[*Process][]*Key{} // those without waiters
	leads := map[*Process]bool{}  // some of them are shards
	for _, k := range p.Keys {
		for _, h := range k.Holders {
			quiet, ok := m.quiet(h.Process)
			if !ok {
				continue
			}
			e := elections[k.ID]
			if k.Main != nil {
				break // the verdict is about the lock that decides the election
			}
			if len(k.Waiters) == 0 && e == nil {
				idle[h.Process] = append(idle[h.Process], k)
				leads[h.Process] = leads[h.Process] || k.Leads()
				continue
			}
			v := of(k, HolderSilent, Critical, fmt.Sprintf("%s holds %s and has not answered for %s.", h.Who(), k.Text, Age(quiet)), h.describe(), waits(k), place(h.Process.as(h.Service)))
			v.Subject = number(h.PID)
			v.Advice = advice
			if e != nil {
				if leader, left := e.SilentLeader(p.At); left > 0 {
					v.Text = fmt.Sprintf("%s leads %s and has been silent for %s; it may lead for up to %s.", h.Who(), k.Text, Age(quiet), Age(left))
					v.Evidence = append(v.Evidence, leader.Node+" led when it answered last, term "+or(leader.Term, "unknown"))
				}
			}
			all = append(all, v)
			break
		}
	}
	for _, proc := range p.Processes {
		if keys := idle[proc]; len(keys) > 0 {
			quiet, _ := m.quiet(proc)
			s := Warning
			if leads[proc] {
				s = Critical // nobody else may do their work meanwhile
			}
			v := Verdict{
				Name: HolderSilent, Severity: s, Subject: proc.Name, Advice: advice, Who: []string{proc.Name},
				Text: fmt.Sprintf("%s holds %s and has not answered for %s; nobody waits.", proc.Name, Count(len(keys), "key", "keys"), Age(quiet)),
			}
			var lines []string
			for _, k := range keys {
				lines = append(lines, "it holds "+k.Text)
				v.links(k)
			}
			v.Evidence = append(few(lines), place(proc))
			all = append(all, v)
		}
	}
	return all
}

// place describes where a process runs.
func place(p *Process) string {
	if p.Host == "" {
		return "the process never answered this monitor"
	}
	return p.Place()
}

func idleHolders(m *Memory, p *Picture) (all []Verdict) {
	for _, k := range p.Keys {
		for _, h := range k.Holders {
			if !strings.HasPrefix(h.State, "idle in transaction") || h.StateAge < m.limits.Idle {
				continue
			}
			s := Warning
			if len(k.Waiters) == 0 {
				s = Note
			}
			v := of(k, HolderIdle, s, fmt.Sprintf("%s holds %s and has been idle in a transaction for %s.", h.Who(), k.Text, Age(h.StateAge)), h.describe(), waits(k))
			v.Subject = number(h.PID)
			v.Advice = "Its program opened a transaction and is doing something else, or hangs. Commit the transaction or roll it back; idle_in_transaction_session_timeout limits it."
			all = append(all, v)
		}
	}
	return all
}

func preparedHolders(m *Memory, p *Picture) (all []Verdict) {
	for _, k := range p.Keys {
		for _, h := range k.Holders {
			if !h.Prepared || h.Age < m.limits.Confirm {
				continue
			}
			s := Warning
			if len(k.Waiters) > 0 {
				s = Critical
			}
			v := of(k, Prepared, s, fmt.Sprintf("A prepared transaction holds %s.", k.Text), waits(k), "seen for "+Age(h.Age)+"; it has no session that could be ended")
			v.Advice = "SELECT gid, prepared, owner FROM pg_prepared_xacts; then COMMIT PREPARED or ROLLBACK PREPARED. Nothing else frees the key, not even a restart."
			all = append(all, v)
			break
		}
	}
	return all
}

// foreign finds sessions without an answering process on keys of our namespaces.
func foreign(m *Memory, p *Picture) (all []Verdict) {
	ours := map[string]bool{}
	listens := map[string]bool{}
	for _, k := range p.Keys {
		for _, h := range k.Holders {
			ours[k.Namespace] = ours[k.Namespace] || h.Process != nil
		}
		for _, w := range k.Waiters {
			ours[k.Namespace] = ours[k.Namespace] || w.Process != nil
		}
	}
	for _, proc := range p.Processes {
		listens[ListenerName(bare(proc))] = true
	}
	delete(ours, "")
	for _, k := range p.Keys {
		for _, h := range k.Holders {
			if h.Process != nil || h.Prepared || !ours[k.Namespace] || listens[ListenerName(h.Name)] {
				continue
			}
			lasted, sure := m.unclaimed("foreign/", k, h, p.At)
			if !sure || len(k.Waiters) == 0 && lasted < 10*time.Second {
				continue
			}
			v := of(k, Foreign, Warning, fmt.Sprintf("%s, for which no process of pglatch answers, holds %s.", h.Session.describe(), k.Text),
				"processes of pglatch use the namespace "+k.Namespace, waits(k))
			v.Subject = number(h.PID)
			v.Advice = "Another program, a psql session, or a transaction of yours (LockTx) took the key; or its process has Config.Answer off. Find out whose session it is before you end it."
			all = append(all, v)
		}
	}
	return all
}

// bare returns a process's name as in its sessions.
func bare(p *Process) string {
	return strings.TrimSuffix(p.Name, " #"+number(p.PID))
}

func starving(m *Memory, p *Picture) (all []Verdict) {
	for _, k := range p.Keys {
		for _, w := range k.Waiters {
			if w.Shared || w.Age < m.limits.Starve {
				continue
			}
			var later []string
			for _, h := range k.Holders {
				if h.Shared && h.Age < w.Age && !slices.Contains(later, h.Who()) {
					later = append(later, h.Who())
				}
			}
			if len(later) == 0 {
				continue
			}
			v := of(k, StarvedWriter, Warning, fmt.Sprintf("%s has waited %s for %s in exclusive mode, and readers came in after it.", w.Who(), Age(w.Age), k.Text),
				"readers that took it later: "+list(later), waits(k))
			v.Subject = w.Who()
			v.Advice = "Readers of pglatch wait behind a writer. Readers that did not wait are in other programs or older versions, or share the lock of a reader in their process until HandOverBudget has passed. Shorten the reads."
			all = append(all, v)
			break
		}
	}
	return all
}

// growing finds queues that are longer than some seconds before. A queue that is served rises and falls: it must be
// long in every look for the time Confirm, and its first request must have waited for as long.
func growing(m *Memory, p *Picture) (all []Verdict) {
	for _, k := range p.Keys {
		n := len(k.Waiters)
		before, ago, ok := m.queueBefore(k.ID, p.At)
		if !ok || n < m.limits.Queue || n < before+before/2+2 {
			continue
		}
		if m.lasting("growing/"+k.ID, p.At) < m.limits.Confirm || k.Longest() < m.limits.Confirm {
			continue
		}
		v := of(k, QueueGrows, Warning, fmt.Sprintf("The queue of %s grows: %s wait, up from %s %s ago.", k.Text, legible.Number(n), legible.Number(before), Age(ago)), waits(k))
		if len(k.Holders) > 0 {
			v.Evidence = append(v.Evidence, fmt.Sprintf("%s holds it for %s", k.Holders[0].Who(), Age(k.Since())))
		}
		v.Advice = "Work arrives faster than one holder at a time can do it, or the holder is slow. Shorten the work under the lock, split the key, or skip (DoOrSkip)."
		all = append(all, v)
	}
	return all
}

// unclaimed records that no process answers for a hold. It returns for how long, and whether this is
// certain. Answers are slightly older than the rows. If a key is constantly taken and released, each query
// may see a hold that is too new for the answer, on a session that has just taken it.
func (m *Memory) unclaimed(what string, k *Key, h *Holder, at time.Time) (time.Duration, bool) {
	const surely = 20 * time.Second
	lasted := m.lasting(what+k.ID+"/"+number(h.PID), at)
	return lasted, lasted >= surely || lasted >= m.limits.Confirm && h.StateAge >= m.limits.Confirm
}

// poolers finds locks that are not where their process expects them, and locks that no process knows.
func poolers(m *Memory, p *Picture) (all []Verdict) {
	const advice = "Something between the program and PostgreSQL changes sessions: give the lock connections a database entry with pool_mode=session."
	for _, u := range p.Unseen {
		// A younger hold is another one, of a key that is taken repeatedly.
		lasted := m.lasting("unseen/"+u.KeyID+"/"+u.Process.ID+"/"+number(u.PID), p.At)
		if lasted < m.limits.Confirm || u.Age < lasted {
			continue
		}
		all = append(all, Verdict{
			Name: Pooler, Severity: Critical, Key: u.Text, KeyID: u.KeyID, Subject: u.Process.Name, Who: []string{u.Process.Name},
			Text:     fmt.Sprintf("%s says that it holds %s on session %d, and PostgreSQL says that it does not.", u.Process.Name, u.Text, u.PID),
			Evidence: []string{"it says so since " + Age(u.Age), place(u.Process)}, Advice: advice,
		})
	}
	whole := map[string]bool{} // the names of processes whose answers were complete
	for _, proc := range p.Processes {
		name := ListenerName(bare(proc))
		was, seen := whole[name]
		whole[name] = proc.Complete && !proc.Silent && (was || !seen)
	}
	for _, k := range p.Keys {
		for _, h := range k.Holders {
			if h.Process != nil || h.Prepared || !whole[ListenerName(h.Name)] || h.State != "idle" || k.Namespace == "" {
				continue
			}
			if _, sure := m.unclaimed("leaked/", k, h, p.At); !sure {
				continue
			}
			v := of(k, Pooler, Critical, fmt.Sprintf("Session %d holds %s in the name of %s, which knows nothing of it.", h.PID, k.Text, h.Name), h.describe(), waits(k))
			v.Subject = number(h.PID)
			v.Advice = advice + fmt.Sprintf(" If no part of that program has its answers off, end session %d to free the key: pglatch terminate %d.", h.PID, h.PID)
			all = append(all, v)
		}
	}
	return all
}
