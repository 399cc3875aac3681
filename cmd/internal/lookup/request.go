package lookup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// A Reply is what became of a request.
type Reply struct {
	Key     string                 `json:"key"`
	Request introspect.RequestKind `json:"request"`
	Replies []introspect.Reply     `json:"replies"`
	// Unanswered are holders whose processes did not answer.
	Unanswered []overview.Party `json:"unanswered,omitempty"`
	// Gone are holders whose processes did not answer either, and that no longer hold the lock: a process may end
	// before it sends its answer.
	Gone []overview.Party `json:"gone,omitempty"`

	before []overview.Party // the holders when the request was sent
	deaf   bool             // nobody answered, and the connection goes through a pooler
}

// Request sends a request about the key of a command's arguments to the processes that hold it, or lead its election.
// It prints their answers. Exit codes: 0 at least one accepted it, or has released it meanwhile, 3 the key has no
// holder, 69 no holder answers, 77 all refused.
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
	before, err := l.Holders(ctx, key)
	if err != nil {
		return err
	}
	all, err := l.Ask(ctx, key, before, r)
	if err != nil {
		return err
	}
	if err := app.Print(program.Output{Document: all, Text: all.Text}); err != nil {
		return err
	}
	return all.Outcome()
}

// Ask sends a request about a key to the processes that hold it, or lead its election. before are its holders.
func (l *Looker) Ask(ctx context.Context, key namespace.Key, before []overview.Party, r introspect.Request) (*Reply, error) {
	r.Tag = key.Tag()
	all := &Reply{Key: key.String(), Request: r.Kind, Replies: []introspect.Reply{}, before: before}
	sent, err := l.send(ctx, r)
	if err != nil && !(len(before) == 0 && errors.Is(err, introspect.ErrQuestion)) { // no process is there to refuse a name
		return nil, err
	}
	if all.Replies = append(all.Replies, sent...); len(sent) > 0 {
		return all, nil
	}
	if all.Unanswered, err = l.Holders(ctx, key); err != nil {
		return nil, err
	}
	all.Gone = slices.DeleteFunc(slices.Clone(before), func(p overview.Party) bool {
		return slices.ContainsFunc(all.Unanswered, func(o overview.Party) bool { return o.PID == p.PID })
	})
	all.deaf = len(all.Unanswered) > 0 && l.pooled(ctx)
	return all, nil
}

// errDeaf implies nothing about the holder: it may have received the request, and have answered.
var errDeaf = errors.New("no answer came, and this connection goes through a pooler: one that shares server sessions between clients passes no answers on, though the request " +
	"may have been carried out; connect to PostgreSQL directly, or through a pool in session mode (PgBouncer: pool_mode=session)")

// pooled reports whether the connection goes through a pooler: its session has another process than announced.
func (l *Looker) pooled(ctx context.Context) bool {
	var pid uint32
	err := l.conn.QueryRow(ctx, "SELECT pg_catalog.pg_backend_pid()").Scan(&pid)
	return err == nil && pid != l.conn.PgConn().PID()
}

// sendTimeout is longer than introspect.Send takes until a candidate is preferred.
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

// Holders returns the holders of a key.
func (l *Looker) Holders(ctx context.Context, key namespace.Key) ([]overview.Party, error) {
	v, err := l.Look(ctx)
	return v.Holders(key), err
}

// Holders returns the holders of a key.
func (v View) Holders(key namespace.Key) (all []overview.Party) {
	for _, r := range (overview.Filter{Tag: key.Tag()}).Apply(v.Rows(key)) {
		all = append(all, r.Holders...)
	}
	return all
}

// Text writes what the processes answered.
func (r *Reply) Text(w *bytes.Buffer) {
	key := program.Printable(r.Key)
	for _, a := range r.Replies {
		said := "accepts it"
		if !a.Done {
			said = "refuses it: " + refusal(r.Request, a)
		} else if a.Note != "" {
			said += ": " + a.Note
		}
		fmt.Fprintf(w, "%s: %s%s %s\n", key, program.Printable(overview.ProcessName(a.Process)), r.backends(a.Process), program.Printable(said))
	}
	for _, p := range r.Unanswered {
		if prepared(p) {
			fmt.Fprintf(w, "%s: a prepared transaction holds it, which has no process to ask\n", key)
			continue
		}
		fmt.Fprintf(w, "%s: no answer from %s\n", key, program.Printable(p.String()))
	}
	for _, p := range r.Gone {
		fmt.Fprintf(w, "%s: no answer from %s, which does not hold it any more\n", key, program.Printable(p.String()))
	}
	if len(r.Replies)+len(r.Unanswered)+len(r.Gone) == 0 {
		fmt.Fprintf(w, "%s is free\n", key)
	}
}

// prepared reports whether a holder is a prepared transaction.
func prepared(p overview.Party) bool { return p.PID == 0 && p.Process == nil }

// backends returns the sessions on which a process holds the key. The session that replied is another one.
func (r *Reply) backends(p introspect.Process) string {
	var all []string
	for _, h := range r.before {
		if h.Process != nil && h.Process.ID == p.ID && h.PID != 0 {
			all = append(all, overview.PIDText(h.PID))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return " (backend " + strings.Join(all, ", ") + ")"
}

// CommandService is the service name of the command's processes, whatever its file name is.
const CommandService = "pglatch"

// refusal returns why a process refused, in terms for the user who started it: Go's terms do not help a user of
// "pglatch run".
func refusal(kind introspect.RequestKind, a introspect.Reply) string {
	if a.Process.Service != CommandService || !strings.Contains(a.Refused, "Config.Answer.") {
		return a.Refused
	}
	stop := fmt.Sprintf("process %d on %s", a.Process.PID, a.Process.Host)
	switch kind {
	case introspect.AskRelease:
		return "it was started without --on-ask=term; to end its command, send TERM to " + stop
	case introspect.AskResign:
		return "it was started without --allow-resign; to have it step down, send TERM to " + stop
	}
	return "it is no Go program whose stack would help: look at the command of " + stop
}

// Outcome returns the error, with its exit code, if no process accepted the request.
func (r *Reply) Outcome() error {
	if r.deaf {
		return &program.ExitError{Code: program.ExitUnavailable, Err: errDeaf}
	}
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
	case slices.ContainsFunc(r.Unanswered, prepared):
		return &program.ExitError{Code: program.ExitUnavailable, Err: errors.New(
			"a prepared transaction cannot be asked: SELECT gid, prepared, owner FROM pg_prepared_xacts; then COMMIT PREPARED or ROLLBACK PREPARED")}
	case len(r.Unanswered) > 0:
		return &program.ExitError{Code: program.ExitUnavailable, Err: errors.New(
			"the holder does not answer: it is stopped, cut off, or no program that answers; pglatch terminate ends its session")}
	}
	return &program.ExitError{Code: program.ExitFree}
}
