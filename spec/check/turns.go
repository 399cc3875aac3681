package check

import (
	"fmt"
	"slices"

	"github.com/pglatch/pglatch/internal/test/trace"
)

// Turns replays a run of mailboxes. PostgreSQL decides which turn of an entity is the current one, so there is no machine to
// link, and the check has rules of its own. TestTheTablesAcceptRandomWalksOfTheirModels compares them with spec/turns.pml:
//
//   - A message that ends, committed or dead, was sent before, under its number and ID. It ends once.
//   - The messages of an entity end in the order of their numbers, and none is passed over.
//   - The turn of a commit has begun, and no later turn of its entity has.
//   - When the run stops, each message that was sent has ended.
func Turns(run []trace.Event) error {
	entities := make(map[string]*entity)
	for _, e := range run {
		if e.Kind == trace.Sent {
			of := entityOf(entities, e.Key)
			of.numbers = append(of.numbers, e.Number)
		}
	}
	for _, of := range entities {
		slices.Sort(of.numbers)
		of.numbers = slices.Compact(of.numbers) // a message that was sent again
	}
	for i, e := range run {
		if wrong := seeTurn(entities, e); wrong != "" {
			return refuse(run, i, "%s", wrong)
		}
	}
	return nil
}

func entityOf(entities map[string]*entity, name string) *entity {
	if entities[name] == nil {
		entities[name] = &entity{sent: make(map[int64]string), ended: make(map[string]bool), begun: make(map[uint64]bool)}
	}
	return entities[name]
}

func seeTurn(entities map[string]*entity, e trace.Event) (wrong string) {
	switch e.Kind {
	case trace.Sent, trace.Turn, trace.Commit, trace.Dead:
		return entityOf(entities, e.Key).see(e)
	case trace.Stopped:
		for name, of := range entities {
			if len(of.numbers) > 0 {
				return fmt.Sprintf("message %d of %s was sent, and has not ended", of.numbers[0], name)
			}
		}
	}
	return ""
}

// An entity is what a run has shown of one.
type entity struct {
	numbers []int64          // of the messages that have not ended, in their order
	sent    map[int64]string // the IDs of messages
	ended   map[string]bool  // IDs
	begun   map[uint64]bool  // tokens of turns
	latest  uint64           // the greatest of them
}

// see checks the next event of an entity, and returns what is wrong.
func (n *entity) see(e trace.Event) (wrong string) {
	switch e.Kind {
	case trace.Sent:
		if id, ok := n.sent[e.Number]; ok && id != e.Text {
			return fmt.Sprintf("the number %d has the message %s", e.Number, id)
		}
		n.sent[e.Number] = e.Text
		return ""
	case trace.Turn:
		n.begun[e.Term], n.latest = true, max(n.latest, e.Term)
		return ""
	case trace.Commit:
		switch {
		case !n.begun[e.Term]:
			return fmt.Sprintf("the turn %d has not begun", e.Term)
		case n.latest > e.Term:
			return fmt.Sprintf("the turn %d has begun, and is later", n.latest)
		}
	}
	return n.end(e)
}

// end ends a message.
func (n *entity) end(e trace.Event) (wrong string) {
	id, ok := n.sent[e.Number]
	switch {
	case !ok:
		return fmt.Sprintf("nobody has sent a message with the number %d", e.Number)
	case id != e.Text:
		return fmt.Sprintf("the number %d has the message %s", e.Number, id)
	case n.ended[id]:
		return fmt.Sprintf("the message %s has ended before", id)
	case n.numbers[0] != e.Number:
		return fmt.Sprintf("the message with the number %d is passed over", n.numbers[0])
	}
	n.ended[id], n.numbers = true, n.numbers[1:]
	return ""
}
