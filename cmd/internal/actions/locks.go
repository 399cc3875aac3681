package actions

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// lockKinds are the actions on locks and their sessions, the mildest first.
func lockKinds() []kind {
	return []kind{
		{name: "dump", text: "Ask the holder to log its stack", need: Ask, fields: []string{"key"}, plan: asking(introspect.AskDump, "to log its stack")},
		{name: "ask", text: "Ask the holder to release a lock", need: Ask, fields: []string{"key"}, plan: asking(introspect.AskRelease, "to release it")},
		{name: "resign", text: "Ask the leader to let another node lead", need: Ask, fields: []string{"key", "to?"}, plan: asking(introspect.AskResign, "to let another node lead")},
		{name: "terminate", text: "End a session, which frees all its locks", need: End, fields: []string{"session"}, plan: terminating},
	}
}

// asking plans a request to the processes that hold a key.
func asking(what introspect.RequestKind, wish string) func(context.Context, *Database, *lookup.Looker, Request) (*plan, error) {
	return func(ctx context.Context, _ *Database, l *lookup.Looker, r Request) (*plan, error) {
		key, err := l.Key(ctx, []string{r.Key})
		if err != nil {
			return nil, err
		}
		v, err := l.Look(ctx)
		if err != nil {
			return nil, err
		}
		p := &plan{title: fmt.Sprintf("Ask the holder of %s %s", quoted(key.String()), wish), same: string(what) + " " + key.Tag().String() + " " + r.To}
		if r.To != "" {
			if err := candidate(v, key, r.To); err != nil {
				return nil, err
			}
			p.title = fmt.Sprintf("Ask the leader of %s to let %s lead", quoted(key.String()), quoted(r.To))
		}
		holders := p.holders(v, key)
		if len(holders) == 0 {
			return nil, &program.ExitError{Code: program.ExitFree, Err: fmt.Errorf("nobody holds %s", program.Printable(key.String()))}
		}
		p.run = func(ctx context.Context, _ string) (string, error) {
			reply, err := l.Ask(ctx, key, holders, introspect.Request{Kind: what, To: r.To})
			if err != nil {
				return "", err
			}
			var text bytes.Buffer
			reply.Text(&text)
			return strings.TrimSpace(text.String()), reply.Outcome()
		}
		return p, nil
	}
}

// holders adds the holders of a key to a plan.
func (p *plan) holders(v lookup.View, key namespace.Key) (all []overview.Party) {
	waiters := 0
	for _, r := range (overview.Filter{Tag: key.Tag()}).Apply(v.Rows(key)) {
		all, waiters = append(all, r.Holders...), waiters+len(r.Waiters)
	}
	for _, h := range all {
		line := fmt.Sprintf("%s holds it for %s", quoted(h.Who()), h.Lasted())
		if h.PID != 0 {
			line += fmt.Sprintf(", on backend %d", h.PID)
		}
		if h.Label != "" {
			line += ": " + quoted(h.Label)
		}
		p.lines = append(p.lines, line)
		p.ends = append(p.ends, fmt.Sprintf("%s %d", h.Name, h.PID))
	}
	if waiters > 0 {
		p.lines = append(p.lines, incident.Count(waiters, "waits for it", "wait for it"))
	}
	p.lines = append(p.lines, "Each process decides whether it does so.")
	return all
}

// candidate refuses a node that does not answer as a candidate of the key's election, or leads it.
func candidate(v lookup.View, key namespace.Key, node string) error {
	var all []string
	for _, e := range elections(v.Answers) {
		if e.Tags[0] == key.Tag() && e.Leader != e.Node {
			all = append(all, e.Node)
		}
	}
	if slices.Contains(all, node) {
		return nil
	}
	slices.Sort(all)
	return program.UsageError("no candidate that answers is named %q: there are %s", program.Printable(node), program.Printable(cmp.Or(strings.Join(all, ", "), "none")))
}

// elections returns what processes say about elections in the database.
func elections(a introspect.Answers) (all []introspect.Election) {
	for i := range a.Answers {
		for _, e := range a.Answers[i].Elections {
			if len(e.Tags) > 0 {
				all = append(all, e)
			}
		}
	}
	return all
}

// terminating plans the end of a session.
func terminating(ctx context.Context, _ *Database, l *lookup.Looker, r Request) (*plan, error) {
	v, err := l.Victim(ctx, r.Session)
	if err != nil {
		return nil, err
	}
	if err := v.Related(); err != nil {
		return nil, program.UsageError("%s", strings.ReplaceAll(err.Error(), "give --force", "pglatch terminate has --force"))
	}
	locks, waits, behind := 0, 0, 0
	p := &plan{same: fmt.Sprintf("%d %d %s", v.PID, v.Start.UnixNano(), v.Process)}
	for _, l := range v.Loses {
		if p.ends = append(p.ends, fmt.Sprint(l.Waits, " ", l.Kind, " ", l.Key)); l.Waits {
			waits++
			continue
		}
		locks, behind = locks+1, behind+l.Next
	}
	p.title = fmt.Sprintf("End backend %d: this session carries %s of %s", v.PID, count(locks, "lock"), quoted(cmp.Or(v.Process, v.ApplicationName, "no known process")))
	var text bytes.Buffer
	v.Describe(&text, quoted)
	p.lines = clamp(strings.Split(strings.TrimSpace(text.String()), "\n"))
	if waits > 0 {
		p.lines = append(p.lines, fmt.Sprintf("%s of it end with an error", count(waits, "wait")))
	}
	if behind > 0 {
		p.lines = append(p.lines, fmt.Sprintf("%s for what it holds", incident.Count(behind, "waits", "wait")))
	}
	p.run = func(ctx context.Context, _ string) (string, error) {
		if err := l.Terminate(ctx, v); err != nil {
			return "", err
		}
		return v.Ended(), nil
	}
	return p, nil
}

// count returns text such as "1 lock" or "2,000 locks".
func count(n int, what string) string { return incident.Count(n, what, what+"s") }
