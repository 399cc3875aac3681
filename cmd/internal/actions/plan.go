package actions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/internal/legible"
)

// A Request is what a person wants done. Which fields it needs depends on the action.
type Request struct {
	Action  string `json:"action"`
	Key     string `json:"key,omitempty"`
	To      string `json:"to,omitempty"`
	Session uint32 `json:"session,omitempty"`
	Group   string `json:"group,omitempty"`
	Shard   string `json:"shard,omitempty"`
	Node    string `json:"node,omitempty"`
	Lease   string `json:"lease,omitempty"`
	Mailbox string `json:"mailbox,omitempty"`
	Entity  string `json:"entity,omitempty"`
	Number  int64  `json:"number,omitempty"`
}

// A plan is what an action would do now.
type plan struct {
	title string   // what is done
	lines []string // what that means, for people
	same  string   // what the plan is about: another text is another thing
	ends  []string // what ends with it; a plan that ends more must be shown again
	run   func(ctx context.Context, why string) (string, error)
}

const confirmWithin = 2 * time.Minute

// errManyConfirmations refuses to show another action, so that nothing that a person was shown is forgotten early.
var errManyConfirmations = errors.New("too many confirmations wait: try again")

// errConfirm is the answer to a confirmation that cannot be used.
var errConfirm = errors.New("this confirmation is used, too old, or somebody else's: ask again what the action does")

// A confirmation is what a person was shown, and has not confirmed yet. Each can be used once.
type confirmation struct {
	database *Database
	who      string
	request  Request
	shown    *plan
}

// pendingOf returns a confirmation that a person was shown; ok = it can be used.
func (s *Server) pendingOf(d *Database, id, who string) (c confirmation, ok bool) {
	c, ok = s.pending.find(id)
	return c, ok && c.database == d && c.who == who
}

// within reports whether the plan ends nothing that an earlier one did not show.
func (p *plan) within(shown *plan) bool {
	if p.same != shown.same || p.title != shown.title && len(p.ends) == 0 {
		return false
	}
	known := make(map[string]bool, len(shown.ends))
	for _, e := range shown.ends {
		known[e] = true
	}
	return !slices.ContainsFunc(p.ends, func(e string) bool { return !known[e] })
}

// A kind is one kind of action.
type kind struct {
	name, text string
	need       Role
	fields     []string // of the Request; the first names the target. One with a ? may be empty
	plan       func(ctx context.Context, d *Database, l *lookup.Looker, r Request) (*plan, error)
}

// kinds returns the actions on a database, the mildest first.
func (d *Database) kinds() []kind {
	return slices.Concat(lockKinds(), shardKinds(), turnKinds(), leaseKinds())
}

func (d *Database) kindOf(name string) *kind {
	all := d.kinds()
	i := slices.IndexFunc(all, func(k kind) bool { return k.name == name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// fieldsOf returns the fields of a request that are set, by name.
func (r Request) fieldsOf() map[string]string {
	all := map[string]string{"key": r.Key, "to": r.To, "group": r.Group, "shard": r.Shard, "node": r.Node, "lease": r.Lease, "mailbox": r.Mailbox, "entity": r.Entity}
	if r.Session != 0 {
		all["session"] = fmt.Sprint(r.Session)
	}
	if r.Number != 0 {
		all["number"] = fmt.Sprint(r.Number)
	}
	for name, value := range all {
		if value == "" {
			delete(all, name)
		}
	}
	return all
}

// check refuses a request that lacks a field, or has one that its action does not know.
func (k *kind) check(r Request) error {
	set := r.fieldsOf()
	for _, f := range k.fields {
		name, optional := strings.CutSuffix(f, "?")
		if set[name] == "" && !optional {
			return fmt.Errorf("%s needs the field %s", k.name, name)
		}
		delete(set, name)
	}
	for name := range set {
		return fmt.Errorf("%s has no field %s", k.name, name)
	}
	return nil
}

// target names what a request is about, for the audit.
func (d *Database) target(k *kind, r Request) string {
	set := r.fieldsOf()
	var all []string
	switch {
	case k.name == forceRelease && d.Leases != nil:
		all = append(all, "lock server "+d.LockServer)
	case d.Name != "":
		all = append(all, fmt.Sprintf("database %s (%s)", d.Name, d.place()))
	}
	for _, f := range k.fields {
		name := strings.TrimSuffix(f, "?")
		if set[name] != "" {
			all = append(all, name+" "+set[name])
		}
	}
	return strings.Join(all, ", ")
}

// quoted is text that others chose within a sentence of ours, on the page.
func quoted(text string) string { return legible.Isolate(legible.Line(text)) }

// shownLines is how many lines a confirmation shows.
const shownLines = 40

// clamp returns the first of many lines, and how many more there are.
func clamp(lines []string) []string {
	if len(lines) <= shownLines {
		return lines
	}
	return append(slices.Clone(lines[:shownLines]), fmt.Sprintf("and %s more", legible.Number(len(lines)-shownLines)))
}
