package lookup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/cli/overview"
	"github.com/pglatch/pglatch/internal/cli/program"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// A reply is what a command says that sent a request.
type reply struct {
	Key     string                 `json:"key"`
	Request introspect.RequestKind `json:"request"`
	Replies []introspect.Reply     `json:"replies"`
	// Unanswered are holders of whose processes nothing was heard.
	Unanswered []overview.Party `json:"unanswered,omitempty"`
	// Gone are those of whom nothing was heard either, and who hold it no more: a process may
	// end before its answer is on its way.
	Gone []overview.Party `json:"gone,omitempty"`
}

// Request sends a request about the key of a command's arguments to the processes that hold
// it, or lead its election, and prints what they say. Exit codes: 0 at least one accepted it, or has
// released it meanwhile, 3 nobody holds the key, 69 no holder answers, 77 all refused.
func Request(ctx context.Context, app *program.App, args []string, r introspect.Request) error {
	l, err := Open(app, nil, 0)
	if err != nil {
		return err
	}
	defer l.Close()
	key, err := l.Key(ctx, args)
	if err != nil {
		return err
	}
	r.Tag = key.Tag()
	all := reply{Key: key.String(), Request: r.Kind, Replies: []introspect.Reply{}}
	before, err := l.holders(ctx, key)
	if err != nil {
		return err
	}
	sent, err := l.send(ctx, r)
	if err != nil {
		return err
	}
	all.Replies = append(all.Replies, sent...)
	if len(sent) == 0 {
		if all.Unanswered, err = l.holders(ctx, key); err != nil {
			return err
		}
		all.Gone = slices.DeleteFunc(before, func(p overview.Party) bool {
			return slices.ContainsFunc(all.Unanswered, func(o overview.Party) bool { return o.PID == p.PID })
		})
	}
	if err := app.Print(program.Output{Document: all, Text: program.Text(all.text)}); err != nil {
		return err
	}
	return all.outcome()
}

// sendTimeout is more than introspect.Send takes until a candidate is preferred.
const sendTimeout = 15 * time.Second

// send connects and sends a request.
func (l *Looker) send(ctx context.Context, r introspect.Request) ([]introspect.Reply, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, sendTimeout, errors.New("they cannot be reached in time"))
	defer cancel()
	if err := l.connect(ctx); err != nil {
		return nil, err
	}
	replies, err := introspect.Send(ctx, l.conn, r)
	if errors.Is(err, introspect.ErrQuestion) {
		return nil, program.UsageError("%w", err)
	}
	return replies, program.Unavailable(ctx, err)
}

// holders are the holders of a key.
func (l *Looker) holders(ctx context.Context, key namespace.Key) ([]overview.Party, error) {
	v, err := l.Look(ctx)
	if err != nil {
		return nil, err
	}
	var all []overview.Party
	for _, r := range (overview.Filter{Tag: key.Tag()}).Apply(v.Rows(key)) {
		all = append(all, r.Holders...)
	}
	return all, nil
}

func (r reply) text(w *bytes.Buffer) {
	key := program.Printable(r.Key)
	for _, a := range r.Replies {
		said := "accepts it"
		if !a.Done {
			said = "refuses it: " + a.Refused
		} else if a.Note != "" {
			said += ": " + a.Note
		}
		fmt.Fprintf(w, "%s: %s (backend %d) %s\n", key, program.Printable(overview.ProcessName(a.Process)), a.Session, program.Printable(said))
	}
	for _, p := range r.Unanswered {
		fmt.Fprintf(w, "%s: no answer from %s\n", key, program.Printable(p.String()))
	}
	for _, p := range r.Gone {
		fmt.Fprintf(w, "%s: no answer from %s, which does not hold it any more\n", key, program.Printable(p.String()))
	}
	if len(r.Replies)+len(r.Unanswered)+len(r.Gone) == 0 {
		fmt.Fprintf(w, "%s is free\n", key)
	}
}

// outcome is the exit code of what was said.
func (r reply) outcome() error {
	var refused []string
	for _, a := range r.Replies {
		if a.Done {
			return nil
		}
		refused = append(refused, overview.ProcessName(a.Process))
	}
	switch {
	case len(refused) > 0:
		return &program.ExitError{Code: program.ExitRefused, Err: fmt.Errorf("refused by %s", strings.Join(refused, ", "))}
	case len(r.Gone) > 0:
		return nil
	case len(r.Unanswered) > 0:
		return &program.ExitError{Code: program.ExitUnavailable, Err: errors.New(
			"the holder does not answer: it is stopped, cut off, or no program that answers; pglatch terminate ends its session")}
	}
	return &program.ExitError{Code: program.ExitFree}
}
