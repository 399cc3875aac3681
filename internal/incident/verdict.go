package incident

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/legible"
)

// A Severity is the importance of a Verdict.
type Severity string

// The severities.
const (
	Critical Severity = "critical" // work stands still, or two may do it
	Warning  Severity = "warning"  // it will, or is slower than it should be
	Note     Severity = "note"     // for information
)

func (s Severity) rank() int {
	return slices.Index([]Severity{Critical, Warning, Note}, s)
}

// A Verdict is a problem. monitor.Verdict documents the fields.
type Verdict struct {
	Name     string    `json:"name"`
	Severity Severity  `json:"severity"`
	Key      string    `json:"key,omitempty"`
	KeyID    string    `json:"-"`
	Subject  string    `json:"subject,omitempty"`
	Text     string    `json:"text"`
	Evidence []string  `json:"evidence"`
	Advice   string    `json:"advice"`
	Doc      string    `json:"doc"`
	Since    time.Time `json:"since"`
	Waiters  int       `json:"waiters,omitempty"`
	// Consequences are verdicts that end when this one does. For a silent holder, for example, that its
	// key is held for long.
	Consequences []Verdict `json:"-"`
	// Who are the names of the processes, nodes, sessions or hosts that the verdict is about.
	Who  []string `json:"who,omitempty"`
	also []string // the IDs of all its keys, if there are several
	sole bool     // the verdict is about the only holder of its key
}

// mostKeys is how many keys a verdict links at most: the past keeps them for an hour.
const mostKeys = 100

// Keys returns the IDs of the keys concerned.
func (v *Verdict) Keys() []string {
	if len(v.also) > 0 {
		return v.also
	}
	return []string{v.KeyID}
}

// links adds a key to those that a verdict concerns.
func (v *Verdict) links(k *Key) {
	if len(v.also) < mostKeys && !slices.Contains(v.also, k.ID) {
		v.also = append(v.also, k.ID)
	}
}

// Of reports whether the verdict is about a key.
func (v *Verdict) Of(keyID string) bool { return slices.Contains(v.Keys(), keyID) }

func (v *Verdict) id() string { return v.Name + "\x00" + v.KeyID + "\x00" + v.Subject }

// The names of the verdicts. Each has a section in the page that pageOf returns.
const (
	Deadlock      = "deadlock"
	HeldLong      = "held-long"
	HolderSilent  = "holder-silent"
	HolderIdle    = "holder-idle-in-transaction"
	Foreign       = "foreign-holder"
	Prepared      = "prepared-transaction"
	StarvedWriter = "starving-writer"
	QueueGrows    = "queue-growing"
	LockTable     = "lock-table"
	Connections   = "connections"
	Pooler        = "pooler"
	Standby       = "standby"
	NameClash     = "namespace-clash"
	ElectionClash = "election-clash"
	NoLeader      = "no-leader"
	TwoLeaders    = "two-leaders"
	CannotConnect = "follower-cannot-connect"
	Clocks        = "clocks"
	ProcessSilent = "process-silent"
	CommitsWait   = "commits-wait"

	StuckTurn      = "turn-stuck"
	GrowingBacklog = "backlog-growing"
	PoisonMessage  = "poison-message"
)

// pageOf returns the page that has a verdict's section.
func pageOf(name string) string {
	switch name {
	case StuckTurn, GrowingBacklog, PoisonMessage:
		return "docs/how-to/incidents-of-turns.md"
	}
	return "docs/how-to/incidents.md"
}

// Doc returns where verdicts of a name are explained, from the root of the repository.
func Doc(name string) string { return pageOf(name) + "#" + name }

// Names returns the names of all verdicts, in their display order.
func Names() []string {
	return []string{
		Deadlock, TwoLeaders, NoLeader, HolderSilent, Pooler, LockTable, CommitsWait, Prepared, HolderIdle, NameClash, ElectionClash, StarvedWriter, Foreign, HeldLong, QueueGrows,
		StuckTurn, GrowingBacklog, PoisonMessage, CannotConnect, Connections, Clocks, ProcessSilent, Standby,
	}
}

// Limits define when something is a problem. Start from DefaultLimits.
type Limits struct {
	Long      time.Duration // of a normal hold of a key
	Factor    float64       // how many times longer than usual a hold may be
	AtLeast   time.Duration // the shortest hold that can be long by Factor
	Confirm   time.Duration // for which a possibly transient condition must last
	Idle      time.Duration // for which a holder may be idle in a transaction
	Starve    time.Duration // for which a writer may wait while readers get in
	Queue     int           // of waiters without a verdict
	LockTable float64       // the share of its room
	Connect   float64       // the share of the connections
	Clock     time.Duration // by which clocks may differ
	Commit    time.Duration // for which a commit may wait for a standby
}

// DefaultLimits are the limits for a Config without its own.
func DefaultLimits() Limits {
	return Limits{
		Long: 5 * time.Minute, Factor: 10, AtLeast: 2 * time.Second, Confirm: 1500 * time.Millisecond, Idle: 3 * time.Second, Starve: 10 * time.Second,
		Queue: 5, LockTable: 0.7, Connect: 0.9, Clock: time.Second, Commit: 3 * time.Second,
	}
}

// A check finds verdicts of one kind in a picture.
type check func(m *Memory, p *Picture) []Verdict

var checks = []check{
	deadlocks, twoLeaders, noLeader, silentHolders, poolers, lockTable, commitsWait, preparedHolders, idleHolders, clashes, electionClashes, starving, foreign, heldLong, growing,
	stuckTurns, backlogs, poison, cannotConnect, connections, clocks, silentProcesses, standby,
}

// verdicts runs all checks, and sorts first what blocks the most waiters.
func (m *Memory) verdicts(p *Picture) (all []Verdict) {
	for _, check := range checks {
		all = append(all, check(m, p)...)
	}
	for i := range all {
		v := &all[i]
		v.Doc = Doc(v.Name)
		v.Since = p.At.Add(-m.lasting("verdict/"+v.id(), p.At))
	}
	all = folded(all)
	slices.SortStableFunc(all, worseFirst)
	return most(all)
}

// worseFirst sorts by severity, then by the number of waiters.
func worseFirst(a, b Verdict) int {
	return cmp.Or(cmp.Compare(a.Severity.rank(), b.Severity.rank()), cmp.Compare(b.Waiters, a.Waiters))
}

// perName is how many verdicts of one name are shown.
const perName = 20

// most omits verdicts beyond perName, and adds their number.
func most(all []Verdict) []Verdict {
	counts := map[string]int{}
	last := map[string]int{}
	kept := all[:0]
	for _, v := range all {
		if counts[v.Name]++; counts[v.Name] <= perName {
			last[v.Name] = len(kept)
			kept = append(kept, v)
		}
	}
	for name, n := range counts {
		if n > perName {
			v := &kept[last[name]]
			v.Evidence = append(v.Evidence, Count(n-perName, "more verdict", "more verdicts")+" of this kind")
		}
	}
	return kept
}

// of returns a verdict about a key.
func of(k *Key, name string, s Severity, text string, evidence ...string) Verdict {
	v := Verdict{Name: name, Severity: s, Key: k.Text, KeyID: k.ID, Text: text, Evidence: evidence, Waiters: len(k.Waiters), sole: len(k.Holders) == 1}
	for _, h := range k.Holders {
		v.concerns(h.Who())
	}
	return v
}

// mostWho is how many names a verdict has at most.
const mostWho = 5

// concerns adds names to Who.
func (v *Verdict) concerns(names ...string) {
	for _, name := range names {
		if name != "" && len(v.Who) < mostWho && !slices.Contains(v.Who, name) {
			v.Who = append(v.Who, name)
		}
	}
}

// waits describes the waiters of a key.
func waits(k *Key) string {
	if len(k.Waiters) == 0 {
		return "nobody waits"
	}
	who := map[string]bool{}
	for _, w := range k.Waiters {
		who[w.Who()] = true
	}
	of := ""
	if len(who) > 1 {
		of = fmt.Sprintf(" of %d processes", len(who))
	}
	return fmt.Sprintf("%s%s, the first for %s", Count(len(k.Waiters), "waits", "wait"), of, Age(k.Longest()))
}

// Count returns text such as "1 lock" or "2,000 locks".
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return legible.Number(n) + " " + many
}

// Age returns a duration for people: two units at most.
func Age(d time.Duration) string {
	switch {
	case d < 0:
		return "0 s"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%.0f s", d.Truncate(time.Second).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}

// describe describes a holder's session as evidence.
func (s Session) describe() string {
	text := "session " + number(s.PID)
	if s.Name != "" {
		text += " (" + s.Name + ")"
	}
	if s.State != "" {
		text += ", " + s.State
	}
	return text
}

func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
