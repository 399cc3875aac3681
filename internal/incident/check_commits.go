package incident

import "fmt"

// commitsWait finds that commits wait for a standby that does not confirm them. The server says only since when a session has
// run its statement. A long statement that commits by itself waits for a moment, so the wait must be seen for a while too.
func commitsWait(m *Memory, p *Picture) []Verdict {
	c := &p.Server.Commits
	if c.Waiting == 0 || c.Longest < m.limits.Commit || m.lasting("commits", p.At) < m.limits.Confirm {
		return nil
	}
	v := Verdict{
		Name: CommitsWait, Severity: Critical, Waiters: c.Waiting,
		Text:     fmt.Sprintf("%s for a synchronous standby, the longest for %s.", Count(c.Waiting, "commit waits", "commits wait"), Age(c.Longest)),
		Evidence: []string{"synchronous_standby_names is " + quote(c.Standbys)},
		Advice: "The standby is gone, or far behind: see pg_stat_replication. Bring it back, or take it out of synchronous_standby_names (ALTER SYSTEM, then pg_reload_conf). " +
			"The commits then go on. Do not cancel them: the program of a canceled commit believes that a standby has it.",
	}
	for _, name := range c.Who {
		v.concerns(quote(or(name, "a session without a name")))
	}
	v.Evidence = append(v.Evidence, "sessions of "+list(v.Who))
	return []Verdict{v}
}
