package postgres

import (
	"slices"
	"time"

	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader/shards/postgres/internal/group"
	"github.com/pglatch/pglatch/namespace"
)

// An ownedShard is a shard that a session owns.
type ownedShard struct {
	key   int64
	since time.Time
	row   group.Owner // the table's row while the session owns the shard
}

// own records granted shards. The caller has the turn.
func (o *lockSession) own(got []group.Got, keys map[string]int64) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, g := range got {
		o.held[g.Name] = ownedShard{keys[g.Name], now, group.Owner{PID: o.pid, Era: uint16(g.Era), N: g.N, Moment: g.Moment}}
	}
}

// disown removes released shards. The caller has the turn.
func (o *lockSession) disown(names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range names {
		delete(o.held, name)
	}
	o.odd = slices.DeleteFunc(o.odd, func(name string) bool { return slices.Contains(names, name) })
}

// introspect lets the session answer status queries; see package introspect. Close ends that.
func (o *lockSession) introspect(identity string) {
	b := o.backend
	o.answers = introspect.Join(introspect.Member{
		Conn: b.config.ConnConfig, BeforeConnect: b.config.BeforeConnect, Connect: b.config.Connect, ApplicationName: identity,
		Config: b.config.Answer, Source: answerer{o, identity, time.Now()}, Logger: b.config.Logger,
	})
	o.answers.Connected()
}

// An answerer answers status queries about a session.
type answerer struct {
	*lockSession
	identity string
	since    time.Time // since when it is a member
}

var _ introspect.Source = answerer{}

// Connected implements introspect.Source.
func (a answerer) Connected() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return !a.ended
}

// Answer implements introspect.Source.
func (a answerer) Answer(q introspect.Question, into *introspect.Answer) {
	now, g := time.Now(), a.backend.group
	group := introspect.Group{Name: g.Namespace.String(), Number: g.Namespace.Number(), Members: g.Member(), Node: a.identity, Session: a.pid}
	var all []introspect.Lock
	a.mu.Lock()
	if a.ended {
		a.mu.Unlock()
		return
	}
	group.Owned = len(a.held)
	for name, owned := range a.held {
		key, tag := g.Namespace.Name()+"/"+name, g.TagOf(owned.key)
		if q.Matches(tag, key) {
			all = append(all, introspect.Lock{Key: key, Tag: tag, Group: group.Name, Age: now.Sub(owned.since), Session: a.pid, Beside: len(a.held) - 1})
		}
	}
	a.mu.Unlock()
	if members := membersKey(g); q.Matches(group.Members, members) {
		all = append(all, introspect.Lock{Key: members, Tag: group.Members, Group: group.Name, Shared: true, Age: now.Sub(a.since), Session: a.pid, Beside: group.Owned})
	}
	if len(all) == 0 {
		return // the question is about other locks
	}
	slices.SortFunc(all, func(x, y introspect.Lock) int { return int(min(max(y.Age-x.Age, -1), 1)) })
	into.Groups = append(into.Groups, group)
	into.AllLocks += len(all)
	into.Locks = append(into.Locks, all[:min(len(all), q.Limit)]...)
}

// membersKey returns the display name of the lock that all members share.
func membersKey(g group.Group) string { return "members of " + g.Namespace.String() }

// Request implements introspect.Source. It does not give up shards: pins and drains move them.
func (a answerer) Request(r introspect.Request) []introspect.Reply {
	if r.Kind != introspect.AskRelease && r.Kind != introspect.AskDump {
		return nil
	}
	for _, l := range a.asked(r.Tag) {
		return []introspect.Reply{{Key: l.Key, Refused: "it is a shard of " + l.Group + ": pglatch shards drain or pin moves it"}}
	}
	return nil
}

// asked returns the session's locks with this tag.
func (a answerer) asked(tag namespace.Tag) []introspect.Lock {
	var answer introspect.Answer
	a.Answer(introspect.Question{Tags: []namespace.Tag{tag}, Limit: 1}, &answer)
	return answer.Locks
}
