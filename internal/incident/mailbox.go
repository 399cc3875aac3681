package incident

import (
	"slices"
	"time"

	"github.com/pglatch/pglatch/internal/legible"
	"github.com/pglatch/pglatch/namespace"
)

// Failing is from how many attempts without a commit on a message counts as poison.
const Failing = 3

// A Mailbox is a mailbox of package turns.
type Mailbox struct {
	Name    string
	Space   string        // its namespace: "conversation=8"
	Ready   int           // entities whose messages wait for a worker, up to 10,000
	Oldest  time.Duration // for which the first of them is ready; negative = none is yet
	Nodes   []MailboxNode
	Turns   []Turn // the oldest of those that run
	Failing []Turn // entities that pause after Failing attempts or more
	Stopped []Turn // entities that a dead letter stopped
	Dead    []Turn // of the newest dead letters
}

// A MailboxNode is a node that serves a mailbox.
type MailboxNode struct {
	Name  string
	Tag   namespace.Tag // of the lock that it holds
	Alive bool          // somebody holds it
}

// Alive is how many nodes serve the mailbox.
func (b *Mailbox) Alive() (n int) {
	for _, node := range b.Nodes {
		if node.Alive {
			n++
		}
	}
	return n
}

// A Turn is a turn of an entity, or what became of it.
type Turn struct {
	Text        string // the entity's key, as users know it
	named       bool   // commands know it by this text too
	Tag         namespace.Tag
	KeyID       string // "" = the key is not locked
	Node        string
	Age         time.Duration // since its claim, or since the death of its message
	Attempts    int
	Err         string // of the last attempt
	Interrupted bool   // somebody asked it to end
	Behind      bool   // messages came after it began
}

// addMailboxes adds the mailboxes, and names the locks of their nodes: a node holds its lock for as long as it runs,
// and others wait for its end.
func (b *builder) addMailboxes() {
	for _, box := range b.in.Mailboxes {
		box.Name, box.Nodes = quote(box.Name), slices.Clone(box.Nodes)
		for i := range box.Nodes {
			n := &box.Nodes[i]
			n.Name = quote(n.Name)
			if k := b.keys[n.Tag]; k != nil {
				k.Kind, k.Text, k.Group = MailboxLock, "node "+n.Name+" of "+box.Name, box.Name
				n.Alive = len(k.Holders) > 0
			}
		}
		for _, turns := range []*[]Turn{&box.Turns, &box.Failing, &box.Stopped, &box.Dead} {
			*turns = b.shownTurns(*turns)
		}
		b.out.Mailboxes = append(b.out.Mailboxes, &box)
	}
}

// shownTurns returns turns as people may see them.
func (b *builder) shownTurns(turns []Turn) []Turn {
	all := make([]Turn, len(turns))
	for i, t := range turns {
		text, shown := b.in.Text(t.Tag, t.Text)
		t.named = shown && text == t.Text
		t.Text, t.Node, t.Err = text, quote(t.Node), legible.Quote(t.Err, 4*mostShown)
		if !shown {
			t.Err = "" // it can name the entity
		}
		if k := b.keys[t.Tag]; k != nil && t.Tag.Valid() {
			t.KeyID = k.ID
		}
		all[i] = t
	}
	return all
}
