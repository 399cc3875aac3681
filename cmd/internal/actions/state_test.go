package actions

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/monitor/fleet"
)

func TestTheFormOffersWhatTheTablesHave(t *testing.T) {
	t.Parallel()
	tables := &fleet.Fleet{
		Groups: []fleet.Group{
			{Name: "tenant=7", Nodes: []fleet.Node{{Identity: "web-2"}, {Identity: "web-1"}}, List: []fleet.Shard{{Name: "b"}, {Name: "a"}}},
			{Name: "region=9", Nodes: []fleet.Node{{Identity: "web-3"}}},
		},
		Mailboxes: []fleet.Mailbox{{Name: "chat", Turns: []fleet.Turn{{Entity: "chat/2"}, {Entity: "chat/1"}}}, {Name: "mail"}},
		Leases:    []fleet.Lease{{Name: "nightly", State: lease.Held.String()}, {Name: "old", State: lease.Free.String()}},
	}
	offers := func(d Database) *state {
		s := &state{Groups: []groupState{{Group: "tenant=7", Nodes: []string{"web-1"}, Shards: []string{"a"}}}, Leases: []string{}}
		d.addTables(s, tables)
		return s
	}
	s := offers(Database{})
	assert.Equal(t, []groupState{
		{Group: "tenant=7", Nodes: []string{"web-1", "web-2"}, Shards: []string{"a", "b"}}, // b has no owner
		{Group: "region=9", Nodes: []string{"web-3"}, Shards: []string{}},
	}, s.Groups)
	assert.Equal(t, []mailboxState{{"chat", []string{"chat/1", "chat/2"}}, {"mail", []string{}}}, s.Mailboxes)
	assert.Equal(t, []string{"nightly"}, s.Leases, "nobody has the other one")

	elsewhere := Database{Leases: func() (*leasehttp.Client, error) { panic("BUG: nobody asked for it") }}
	assert.Empty(t, offers(elsewhere).Leases, "they are not those of the lock server")
}
