package introspect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/namespace"
)

// The defaults and limits of a Question.
const (
	DefaultTimeout = time.Second
	DefaultLimit   = 500
	MaxLimit       = 5000
)

// ListenerPrefix begins the application_name of the sessions that listen; that of the process'
// lock sessions follows, as far as there is room.
const ListenerPrefix = "pglatch answers: "

// ErrQuestion says that a question, or a request, cannot be sent.
var ErrQuestion = errors.New("introspect: invalid question")

// Ask asks all processes of the connection's database, and returns when all that listen have
// answered, or the Timeout is over. The connection is used by nobody else meanwhile; it must not
// be in a transaction, nor go through a pooler in transaction mode, or to a standby. Notifications that it
// gets of other channels meanwhile are lost. Errors: ErrQuestion, the cause of ctx, those of
// PostgreSQL and the network. What came until then is returned with the error.
func Ask(ctx context.Context, conn *pgx.Conn, q Question) (Answers, error) {
	if q.Limit < 0 || q.Limit > MaxLimit {
		return Answers{}, fmt.Errorf("%w: Limit is %d: use 1 to %d, or 0 for the default of %d", ErrQuestion, q.Limit, MaxLimit, DefaultLimit)
	}
	start := time.Now()
	var all Answers
	silent, err := exchange(ctx, conn, call{Question: &q}, q.Timeout, func(session uint32, m message) bool {
		if m.Answer == nil {
			return false
		}
		m.Answer.Session, m.Answer.Took = session, time.Since(start)
		all.Answers = append(all.Answers, *m.Answer)
		return true
	})
	slices.SortFunc(all.Answers, func(a, b Answer) int { return a.Process.compare(b.Process) })
	all.Silent = silent
	return all, err
}

// Send sends a request to all processes, and returns the replies of those that it concerns.
// None means that no process that answers holds the lock. For the rest it is as Ask.
func Send(ctx context.Context, conn *pgx.Conn, r Request) ([]Reply, error) {
	if !r.Tag.Valid() {
		return nil, fmt.Errorf("%w: Tag is no lock's", ErrQuestion)
	}
	switch r.Kind {
	case AskRelease, AskResign, AskDump:
	default:
		return nil, fmt.Errorf("%w: Kind is %q", ErrQuestion, r.Kind)
	}
	if r.Kind == AskResign && r.To != "" {
		if err := prefer(ctx, conn, r); err != nil {
			return nil, err
		}
	}
	var all []Reply
	_, err := exchange(ctx, conn, call{Request: &r}, r.Timeout, func(session uint32, m message) bool {
		for _, reply := range m.Replies {
			reply.Session = session
			all = append(all, reply)
		}
		return true
	})
	slices.SortFunc(all, func(a, b Reply) int { return a.Process.compare(b.Process) })
	return all, err
}

// backLook is how often a request looks whether candidates stand back.
const backLook = 10 * time.Millisecond

// backBound is how long it waits at least for those who are slow.
const backBound = 5 * time.Second

// prefer has all candidates but one stand back, and waits until those that answer do, or the
// Timeout, 5 s at least, is over: then it is the first in the queue who leads next.
func prefer(ctx context.Context, conn *pgx.Conn, r Request) error {
	bound := max(r.Timeout, backBound)
	end := time.Now().Add(bound)
	ask := r
	ask.Kind = askStandBack
	_, err := exchange(ctx, conn, call{Request: &ask}, bound, func(uint32, message) bool { return true })
	for err == nil && time.Now().Before(end) {
		var answers Answers
		answers, err = Ask(ctx, conn, Question{Tags: []namespace.Tag{r.Tag}, Timeout: bound})
		var all []Election
		for _, a := range answers.Answers {
			all = append(all, a.Elections...)
		}
		if !slices.ContainsFunc(all, r.inTheWay) || slices.ContainsFunc(all, r.leadsAlready) {
			return err
		}
		err = pause.For(ctx, backLook)
	}
	return err
}

// listenersSQL lists the sessions that listen. Their names are shown to every role.
const listenersSQL = `SELECT pid, application_name FROM pg_catalog.pg_stat_activity
	WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
	AND pg_catalog.starts_with(application_name, $1) AND pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()`

// exchange sends a call and takes the messages that come, each from a session that listened
// when it was sent, until all have sent one.
func exchange(ctx context.Context, conn *pgx.Conn, c call, timeout time.Duration, take func(session uint32, m message) bool) ([]Silent, error) {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	c.Version, c.Reply = 1, replyPrefix+random()
	payload, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrQuestion, err)
	}
	if len(payload) > maxPayload {
		return nil, fmt.Errorf("%w: it has %d bytes, and PostgreSQL sends fewer than 8000: ask for fewer tags, or with a Prefix", ErrQuestion, len(payload))
	}
	name := pgx.Identifier{c.Reply}.Sanitize()
	if _, err := conn.Exec(ctx, "LISTEN "+name); err != nil {
		return nil, fmt.Errorf("introspect: listening: %w", err)
	}
	defer func() {
		if !conn.IsClosed() {
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_, _ = conn.Exec(stop, "UNLISTEN "+name) // a connection that cannot is closed
		}
	}()
	silent, err := notify(ctx, conn, string(payload))
	if err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	parts := make(map[uint32]*collection, len(silent))
	for _, s := range silent {
		parts[s.Session] = new(collection)
	}
	for len(silent) > 0 {
		n, err := conn.WaitForNotification(waiting)
		switch {
		case err != nil && ctx.Err() != nil:
			return silent, context.Cause(ctx)
		case err != nil && waiting.Err() != nil:
			return silent, nil
		case err != nil:
			return silent, fmt.Errorf("introspect: waiting for answers: %w", err)
		}
		p := parts[n.PID]
		if n.Channel != c.Reply || p == nil {
			continue
		}
		m, complete, err := p.add(n.Payload)
		if err != nil { // from who is no pglatch
			delete(parts, n.PID)
			continue
		}
		if complete && take(n.PID, m) {
			delete(parts, n.PID)
			silent = slices.DeleteFunc(silent, func(s Silent) bool { return s.Session == n.PID })
		}
	}
	return nil, nil
}

// notify sends the payload and returns who listens.
func notify(ctx context.Context, conn *pgx.Conn, payload string) ([]Silent, error) {
	var b pgx.Batch
	b.Queue(listenersSQL, ListenerPrefix)
	// The batch is one transaction, which nobody needs to be on disk.
	b.Queue("SELECT pg_catalog.set_config('synchronous_commit', 'off', true)")
	b.Queue("SELECT pg_catalog.pg_notify($1, $2)", askChannel, payload)
	results := conn.SendBatch(ctx, &b)
	rows, _ := results.Query()
	listeners, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Silent, err error) {
		err = row.Scan(&s.Session, &s.ApplicationName)
		s.ApplicationName = strings.TrimPrefix(s.ApplicationName, ListenerPrefix)
		return s, err
	})
	if closed := results.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, fmt.Errorf("introspect: asking: %w", err)
	}
	return listeners, nil
}

// inTheWay reports whether a candidate could lead before the one that is to, or is that one, and
// has not heard of it yet.
func (r Request) inTheWay(e Election) bool {
	return (e.State == "follower" || e.State == "acquiring") && e.StandsBack == (e.Node == r.To)
}

func (r Request) leadsAlready(e Election) bool { return e.Node == r.To && e.State == "leader" }
