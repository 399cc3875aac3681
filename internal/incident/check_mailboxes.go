package incident

import (
	"fmt"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/legible"
)

const (
	// unserved is how old a message is, at least, that waits for a node.
	unserved = 5 * time.Second
	// late is from when on a ready entity waits for too long although nodes serve.
	late = 30 * time.Second
)

// aboutTurn returns a verdict about an entity of a mailbox.
func aboutTurn(b *Mailbox, t *Turn, name string, s Severity, text string, evidence ...string) Verdict {
	if t.Err != "" {
		evidence = append(evidence, "its last error: "+t.Err)
	}
	v := Verdict{Name: name, Severity: s, Key: t.Text, KeyID: t.KeyID, Subject: b.Name, Text: text, Evidence: evidence}
	v.concerns(t.Node)
	if t.KeyID == "" {
		v.Subject += " " + t.Text
	}
	return v
}

// turnCommand returns a command about the entity of a turn.
func (p *Picture) turnCommand(verb string, b *Mailbox, t *Turn) string {
	key := "KEY"
	if t.named {
		key = Shell(t.Text)
	}
	others := 0
	for _, o := range p.Mailboxes {
		others += b2i(o.Name != b.Name && o.Space == b.Space)
	}
	if others > 0 {
		key += " --mailbox " + Shell(b.Name)
	}
	return "pglatch turns " + verb + " " + key
}

// Shell quotes a word for the shell.
func Shell(s string) string {
	if !strings.HasSuffix(s, ".") && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/:@._-") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// stuckTurns finds turns whose node is gone, that ignore an interrupt, or that run for long.
func stuckTurns(m *Memory, p *Picture) (all []Verdict) {
	for _, b := range p.Mailboxes {
		for i := range b.Turns {
			if v, ok := m.stuck(p, b, &b.Turns[i]); ok {
				all = append(all, v)
			}
		}
	}
	return all
}

func (m *Memory) stuck(p *Picture, b *Mailbox, t *Turn) (Verdict, bool) {
	id := "turn/" + b.Name + "/" + t.Text + "/" + t.Node
	gone := true
	for _, n := range b.Nodes {
		gone = gone && (n.Name != t.Node || !n.Alive)
	}
	if gone { // a turn that began long ago needs no long observation: another node would have taken it over
		if lasted := m.lasting(id+"/gone", p.At); lasted >= m.limits.Confirm && t.Age >= m.limits.Idle {
			v := aboutTurn(b, t, StuckTurn, Critical, fmt.Sprintf("The turn of %s belongs to a node that has ended, and no other node has taken it over.", t.Text),
				fmt.Sprintf("%s claimed it %s ago", t.Node, Age(t.Age)), serving(b))
			v.Advice = "Another node takes the turn over within a second, if there is one. Start a node that serves the mailbox, and read its log."
			return v, true
		}
	}
	if t.Interrupted {
		if lasted := m.lasting(id+"/interrupted", p.At); lasted >= m.limits.Starve {
			v := aboutTurn(b, t, StuckTurn, Warning, fmt.Sprintf("The turn of %s was interrupted at least %s ago, and is still running.", t.Text, Age(lasted)),
				fmt.Sprintf("%s has had it for %s", t.Node, Age(t.Age)))
			v.Advice = "Perhaps the handler ignores its context: pass the context of the turn to everything that takes a long time. Or its process is stopped, or cut off. To free the entity now, end that process."
			return v, true
		}
	}
	if t.Age < m.limits.Long {
		return Verdict{}, false
	}
	v := aboutTurn(b, t, StuckTurn, Note, fmt.Sprintf("The turn of %s has been running for %s.", t.Text, Age(t.Age)), t.Node+" has it", fmt.Sprintf("it is attempt %d", t.Attempts))
	v.Advice = "If turns normally take that long, raise the monitor's LongHold. Otherwise interrupt the turn: " + p.turnCommand("interrupt", b, t) + "."
	if t.Behind {
		v.Severity = Warning
		v.Evidence = append(v.Evidence, "messages came after it began, and wait")
	}
	return v, true
}

// backlogs finds mailboxes that nobody serves, and those whose entities wait for longer and longer.
func backlogs(m *Memory, p *Picture) (all []Verdict) {
	for _, b := range p.Mailboxes {
		if b.Ready == 0 {
			continue
		}
		v := Verdict{
			Name: GrowingBacklog, Severity: Warning, Subject: b.Name, Waiters: b.Ready,
			Evidence: []string{fmt.Sprintf("%s ready, the first for %s", Count(b.Ready, "entity is", "entities are"), Age(b.Oldest)), serving(b)},
			Advice:   "Perhaps all workers are busy: pglatch turns ls --running shows what they do. Raise Concurrency, start nodes, or make turns shorter. If few turns run, the logs of the nodes say why.",
		}
		lasted := m.lasting("backlog/"+b.Name, p.At)
		before, ago, known := m.queueBefore(mailboxQueue(b), p.At)
		grows := known && b.Ready >= m.limits.Queue && b.Ready >= before+before/2+2 && lasted >= m.limits.Confirm && b.Oldest >= m.limits.Confirm
		switch {
		case b.Alive() == 0 && b.Oldest >= unserved && m.lasting("unserved/"+b.Name, p.At) >= m.limits.Confirm:
			v.Severity, v.Text = Critical, fmt.Sprintf("No node serves the mailbox %s, and its messages wait.", b.Name)
			v.Advice = "Start a node that calls Serve. If nodes run, their logs say why they cannot: the connection, the rights, or the Locker."
		case grows:
			v.Text = fmt.Sprintf("The backlog of the mailbox %s grows: %s entities are ready, up from %s %s ago.", b.Name, legible.Number(b.Ready), legible.Number(before), Age(ago))
		case b.Oldest >= late && lasted >= m.limits.Confirm:
			v.Text = fmt.Sprintf("An entity of the mailbox %s has been ready for %s, and has no turn.", b.Name, Age(b.Oldest))
		default:
			continue
		}
		for _, n := range b.Nodes {
			v.concerns(n.Name)
		}
		all = append(all, v)
	}
	return all
}

// serving says how many nodes serve a mailbox.
func serving(b *Mailbox) string { return Count(b.Alive(), "node serves", "nodes serve") + " it" }

// mailboxQueue names a mailbox among the queues that the memory samples.
func mailboxQueue(b *Mailbox) string { return "mailbox/" + b.Name }

// poison finds messages that fail again and again.
func poison(_ *Memory, p *Picture) (all []Verdict) {
	for _, b := range p.Mailboxes {
		seen := map[string]bool{}
		for i := range b.Stopped {
			t := &b.Stopped[i]
			if seen[t.Text] {
				continue
			}
			seen[t.Text] = true
			v := aboutTurn(b, t, PoisonMessage, Critical, fmt.Sprintf("%s stands still: its message became a dead letter %s ago.", t.Text, Age(t.Age)))
			v.Advice = fmt.Sprintf("See why the message failed: %s. After a fix: %s. To continue without it: %s.",
				p.turnCommand("show", b, t), p.turnCommand("retry", b, t), p.turnCommand("skip", b, t))
			all = append(all, v)
		}
		failing := append([]Turn(nil), b.Failing...)
		for _, t := range b.Turns {
			if t.Attempts > Failing { // the running one can succeed
				failing = append(failing, t)
			}
		}
		for i := range failing {
			v := aboutTurn(b, &failing[i], PoisonMessage, Warning, fmt.Sprintf("The first message of %s has failed again and again: %d attempts have no commit.", failing[i].Text, failing[i].Attempts))
			v.Advice = "Read its error. The message is tried again until MaxAttempts, and its entity waits. After a fix, do not restart anything: the pause ends by itself."
			all = append(all, v)
		}
		if v, ok := deadLetters(b, seen); ok {
			all = append(all, v)
		}
	}
	return all
}

// deadLetters returns a note about dead letters of the last hour, but for those of stopped entities.
func deadLetters(b *Mailbox, stopped map[string]bool) (Verdict, bool) {
	var lines []string
	for _, t := range b.Dead {
		if !stopped[t.Text] {
			line := fmt.Sprintf("%s, %s ago, after %s", t.Text, Age(t.Age), Count(t.Attempts, "attempt", "attempts"))
			if t.Err != "" {
				line += ": " + t.Err
			}
			lines = append(lines, line)
		}
	}
	return Verdict{
		Name: PoisonMessage, Severity: Note, Subject: b.Name, Text: fmt.Sprintf("%s of the mailbox %s became dead letters in the last hour.", Count(len(lines), "message", "messages"), b.Name),
		Evidence: few(lines), Advice: "Their entities continued without them. pglatch turns ls --dead lists them; retry or skip them.",
	}, len(lines) > 0
}
