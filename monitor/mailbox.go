package monitor

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/internal/mailboxes"
	"github.com/pglatch/pglatch/namespace"
)

// maxMailboxes is how many mailboxes are judged.
const maxMailboxes = 100

// A mailboxView is the mailboxes of package turns, as the newest query saw them.
type mailboxView struct {
	at       time.Time // of the newest look for the tables
	readable bool
	all      []incident.Mailbox
}

// lookAtMailboxes reads the mailboxes, if there are any and this role may read them. It fails only with the connection:
// what is wrong with their tables must not hide the locks.
func (m *Monitor) lookAtMailboxes(ctx context.Context) {
	b := &m.mailboxes
	b.all = nil
	var err error
	if time.Since(b.at) >= factsEvery {
		b.at = time.Now()
		b.readable, err = mailboxes.Readable(ctx, m.conn)
	}
	var all []mailboxes.Mailbox
	if b.readable && err == nil {
		all, err = mailboxes.Read(ctx, m.conn, mailboxes.Request{Most: maxMailboxes, Failing: incident.Failing})
	}
	if err != nil {
		m.config.Logger.Debug("mailboxes_not_seen", slog.Any("error", err))
	}
	for _, box := range all {
		b.all = append(b.all, mailboxOf(box))
	}
}

// mailboxOf names the locks of a mailbox.
func mailboxOf(b mailboxes.Mailbox) incident.Mailbox {
	box := incident.Mailbox{Name: b.Name, Space: b.Namespace, Ready: b.Due, Oldest: b.Oldest.Duration()}
	for _, n := range b.Nodes {
		box.Nodes = append(box.Nodes, incident.MailboxNode{Name: n.Name, Tag: namespace.SingleRaw(n.Key).Tag()})
	}
	name, digits, _ := strings.Cut(b.Namespace, "=")
	number, _ := strconv.Atoi(digits) // 0 is no namespace
	space, err := namespace.New(number, name)
	entities := func(rows []mailboxes.Turn) (turns []incident.Turn) {
		for _, r := range rows {
			t := incident.Turn{Text: name + "/" + r.Entity, Node: r.Node, Age: r.Age.Duration(), Attempts: r.Attempts, Err: r.Error, Interrupted: r.Interrupted, Behind: r.Behind}
			if err == nil {
				if key, err := space.Text(r.Entity); err == nil {
					t.Tag = key.Tag()
				}
			}
			turns = append(turns, t)
		}
		return turns
	}
	box.Turns, box.Failing, box.Stopped, box.Dead = entities(b.Turns), entities(b.Failing), entities(b.Stopped), entities(b.Dead)
	return box
}
