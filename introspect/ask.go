package introspect

import (
	"cmp"
	"context"
	"crypto/hpke"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/namespace"
)

// The defaults and limits of a Question.
const (
	DefaultTimeout = time.Second
	DefaultLimit   = 500
	MaxLimit       = 5000
)

// ListenerPrefix begins the application_name of the sessions that listen. The name of the process' lock
// sessions follows, as far as there is room.
const ListenerPrefix = "pglatch answers: "

// ErrQuestion says that a question, or a request, cannot be sent.
var ErrQuestion = errors.New("introspect: invalid question")

// Ask asks all processes of the connection's database. It returns when all listening processes have answered,
// or when the Timeout is over.
//
// Nobody else may use the connection during the call. It must not be in a transaction, have an
// OnNotification, go through a pooler in transaction mode, or go to a standby. Notifications of other
// channels that arrive on it during the call are lost. Errors: ErrQuestion, the cause of ctx, and errors of
// PostgreSQL and the network. With an error, Ask also returns the answers that have arrived.
func Ask(ctx context.Context, conn *pgx.Conn, q Question) (Answers, error) {
	return ask(ctx, conn, q, nil)
}

// ask is Ask, but waits only for the listening sessions in of; nil = for all.
func ask(ctx context.Context, conn *pgx.Conn, q Question, of []uint32) (Answers, error) {
	if q.Limit < 0 || q.Limit > MaxLimit {
		return Answers{}, fmt.Errorf("%w: Limit is %d: use 1 to %d, or 0 for the default of %d", ErrQuestion, q.Limit, MaxLimit, DefaultLimit)
	}
	start := time.Now()
	var all Answers
	silent, err := exchange(ctx, conn, call{Question: &q}, q.Timeout, of, func(session uint32, m message) bool {
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

// Send sends a request to all processes, and returns the replies of those that it concerns. If there are
// no replies, no process that answers holds the lock. Otherwise Send works like Ask.
//
// To must name a candidate of the election. Otherwise the error matches ErrQuestion and nothing is sent. A
// candidate that exists may not answer, because it is stopped, cut off or configured not to. In that case
// any candidate may lead next, and the reply's Note says so.
func Send(ctx context.Context, conn *pgx.Conn, r Request) ([]Reply, error) {
	if !r.Tag.Valid() {
		return nil, fmt.Errorf("%w: Tag is no lock's", ErrQuestion)
	}
	switch r.Kind {
	case AskRelease, AskResign, AskDump:
	default:
		return nil, fmt.Errorf("%w: Kind is %q", ErrQuestion, r.Kind)
	}
	note := ""
	if r.Kind == AskResign && r.To != "" {
		preferred, err := prefer(ctx, conn, r)
		switch {
		case err != nil:
			return nil, err
		case !preferred:
			note, r.To = "; "+r.To+" does not answer, so any candidate may lead next", ""
		}
	}
	var all []Reply
	_, err := exchange(ctx, conn, call{Request: &r}, r.Timeout, nil, func(session uint32, m message) bool {
		for _, reply := range m.Replies {
			reply.Session = session
			if reply.Done {
				reply.Note += note
			}
			all = append(all, reply)
		}
		return true
	})
	slices.SortFunc(all, func(a, b Reply) int { return a.Process.compare(b.Process) })
	return all, err
}

// backLook is how often a request checks whether candidates stand back.
const backLook = 10 * time.Millisecond

// backBound is how long a request waits for slow candidates if its Timeout is shorter.
const backBound = 5 * time.Second

// prefer makes all candidates but one stand back, and waits until those that answer have done so. It waits no
// longer than the Timeout or 5 s, whichever is longer. After that, the first candidate in the queue leads
// next. If the result is false, the candidate that is to lead does not answer, and nobody stands back.
func prefer(ctx context.Context, conn *pgx.Conn, r Request) (bool, error) {
	end := time.Now().Add(max(r.Timeout, backBound))
	sessions, all, err := candidates(ctx, conn, r, nil)
	for ; err == nil && !slices.ContainsFunc(all, r.prefers); sessions, all, err = candidates(ctx, conn, r, nil) {
		if err := known(ctx, conn, r, all); err != nil {
			return false, err
		}
		if time.Now().After(end) {
			return false, nil
		}
		if err := pause.For(ctx, backLook); err != nil {
			return false, err
		}
	}
	if err != nil || slices.ContainsFunc(all, r.leadsAlready) {
		return true, err
	}
	ask := r
	ask.Kind = askStandBack
	_, err = exchange(ctx, conn, call{Request: &ask}, time.Until(end), sessions, func(uint32, message) bool { return true })
	for waits := false; err == nil && time.Now().Before(end) && !slices.ContainsFunc(all, r.leadsAlready); {
		if !slices.ContainsFunc(all, r.inTheWay) {
			if waits, err = r.waits(ctx, conn, all); waits || err != nil {
				break
			}
		}
		if err = pause.For(ctx, backLook); err == nil {
			_, all, err = candidates(ctx, conn, r, sessions)
		}
	}
	return true, err
}

// waits reports whether the candidate that is to lead waits for the lock at the server, so that it is granted
// the lock next. If nobody waits, candidates do not stand back for long.
func (r Request) waits(ctx context.Context, conn *pgx.Conn, all []Election) (waits bool, err error) {
	i := slices.IndexFunc(all, r.prefers)
	if i < 0 || all[i].Session == 0 {
		return false, nil
	}
	err = conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_locks WHERE pid OPERATOR(pg_catalog.=) $1 AND locktype OPERATOR(pg_catalog.=) 'advisory'
		AND NOT granted)`, pgx.QueryExecModeExec, int32(all[i].Session)).Scan(&waits)
	if err != nil {
		return false, fmt.Errorf("introspect: looking whether %q waits: %w", r.To, err)
	}
	return waits, nil
}

// candidates returns the candidates of an election that answer. sessions are the listening sessions of all
// processes that answered: a process that did not answer once is not waited for again. of = nil asks all.
func candidates(ctx context.Context, conn *pgx.Conn, r Request, of []uint32) (sessions []uint32, all []Election, err error) {
	answers, err := ask(ctx, conn, Question{Tags: []namespace.Tag{r.Tag}, Timeout: r.Timeout}, of)
	for _, a := range answers.Answers {
		sessions = append(sessions, a.Session)
		all = append(all, a.Elections...)
	}
	return sessions, all, err
}

// known returns an error unless the candidate that is to lead has a session.
func known(ctx context.Context, conn *pgx.Conn, r Request, all []Election) error {
	var exists bool
	if err := conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity
		WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database() AND application_name OPERATOR(pg_catalog.=) $1)`,
		pgx.QueryExecModeExec, pgsession.ApplicationName(r.To)).Scan(&exists); err != nil {
		return fmt.Errorf("introspect: looking for %q: %w", r.To, err)
	}
	if exists {
		return nil
	}
	names := make([]string, 0, len(all))
	for _, e := range all {
		names = append(names, e.Node)
	}
	return fmt.Errorf("%w: To is %q, and the election has no candidate of that identity: name one of those that take part (%s), or nobody, and any of them may lead next",
		ErrQuestion, r.To, cmp.Or(strings.Join(names, ", "), "no one answers"))
}

// listenersSQL lists the sessions that listen. Every role can see their names.
const listenersSQL = `SELECT pid, application_name FROM pg_catalog.pg_stat_activity
	WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
	AND pg_catalog.starts_with(application_name, $1) AND pid OPERATOR(pg_catalog.<>) pg_catalog.pg_backend_pid()`

// exchange sends a call and takes the messages that arrive, each from a session that listened when the call
// was sent. It returns when all sessions have sent one, or all sessions in of if that is not nil.
func exchange(ctx context.Context, conn *pgx.Conn, c call, timeout time.Duration, of []uint32, take func(session uint32, m message) bool) ([]Silent, error) {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	private, public, err := newSeal()
	if err != nil {
		return nil, err
	}
	c.Version, c.Reply, c.Key = 1, replyPrefix+random(), public
	payload, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrQuestion, err)
	}
	if len(payload) > maxPayload {
		return nil, fmt.Errorf("%w: it has %d bytes, and PostgreSQL sends fewer than 8000: ask for fewer tags, or with a Prefix", ErrQuestion, len(payload))
	}
	name := pgx.Identifier{c.Reply}.Sanitize()
	if _, err := conn.Exec(ctx, "LISTEN "+name+"; SELECT pg_catalog.pg_notify('"+c.Reply+"', '')"); err != nil {
		if sqlstate.Of(err) == sqlstate.ReadOnly {
			err = fmt.Errorf("%w, which carries no questions and answers: connect to the primary", session.ErrStandby)
		}
		return nil, fmt.Errorf("introspect: listening: %w", err)
	}
	defer func() {
		if !conn.IsClosed() {
			stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			_, _ = conn.Exec(stop, "UNLISTEN "+name) // a connection that fails here is closed
		}
	}()
	switch {
	case receives(ctx, conn, c.Reply):
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case conn.IsClosed():
		return nil, fmt.Errorf("introspect: listening: %w: the connection ended", session.ErrUnavailable)
	default:
		return nil, fmt.Errorf("%w: the connection's OnNotification takes the answers: use a connection without it", ErrQuestion)
	}
	silent, err := notify(ctx, conn, string(payload))
	if err != nil {
		return nil, err
	}
	if of != nil {
		silent = slices.DeleteFunc(silent, func(s Silent) bool { return !slices.Contains(of, s.Session) })
	}
	waiting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return newGathering(c.Reply, private, silent, take).gather(ctx, waiting, conn)
}

// A gathering takes the answers to a call.
type gathering struct {
	reply  string                 // the channel
	silent []Silent               // sessions without a complete message
	parts  map[uint32]*collection // of these
	take   func(session uint32, m message) bool
}

func newGathering(reply string, private hpke.PrivateKey, silent []Silent, take func(session uint32, m message) bool) *gathering {
	g := &gathering{reply: reply, silent: silent, parts: make(map[uint32]*collection, len(silent)), take: take}
	for _, s := range silent {
		g.parts[s.Session] = &collection{key: private}
	}
	return g
}

// gather waits until all sessions have sent a message, or until waiting ends. Then it takes what has arrived until then:
// this process may have had no CPU time. It returns the sessions that are left, and still exist.
func (g *gathering) gather(ctx, waiting context.Context, conn *pgx.Conn) ([]Silent, error) {
	for late := false; len(g.silent) > 0; {
		n, err := conn.WaitForNotification(waiting)
		switch {
		case err == nil:
			g.add(n)
		case ctx.Err() != nil:
			return g.silent, context.Cause(ctx)
		case waiting.Err() == nil:
			return g.silent, fmt.Errorf("introspect: waiting for answers: %w", err)
		case late:
			return g.silent, nil
		default: // the round trip delivers all notifications that were sent before it
			late = true
			if g.silent, err = remaining(ctx, conn, g.silent); err != nil {
				return g.silent, err
			}
		}
	}
	return nil, nil
}

// add takes a part of a message.
func (g *gathering) add(n *pgconn.Notification) {
	p := g.parts[n.PID]
	if n.Channel != g.reply || p == nil {
		return
	}
	m, complete, err := p.add(n.Payload)
	if err != nil { // the sender is not pglatch
		delete(g.parts, n.PID)
		return
	}
	if complete && g.take(n.PID, m) {
		delete(g.parts, n.PID)
		g.silent = slices.DeleteFunc(g.silent, func(s Silent) bool { return s.Session == n.PID })
	}
}

// receives reports whether the connection keeps the notification that it just sent to itself. The server delivers it with
// the answer to the statement. A handler of the caller's takes it, and would take the answers too.
func receives(ctx context.Context, conn *pgx.Conn, channel string) bool {
	kept, cancel := context.WithCancel(ctx)
	cancel()
	for {
		n, err := conn.WaitForNotification(kept)
		if err != nil || n == nil {
			return false
		}
		if n.Channel == channel {
			return true
		}
	}
}

// notify sends the payload and returns the sessions that listen.
func notify(ctx context.Context, conn *pgx.Conn, payload string) ([]Silent, error) {
	var b pgx.Batch
	b.Queue(listenersSQL, ListenerPrefix)
	// The batch is one transaction, which need not be durable.
	b.Queue("SELECT pg_catalog.set_config('synchronous_commit', 'off', true)")
	b.Queue("SELECT pg_catalog.pg_notify($1, $2)", askChannel, payload)
	results := conn.SendBatch(ctx, &b)
	rows, _ := results.Query()
	listeners, err := pgx.CollectRows(rows, listener)
	if closed := results.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return nil, fmt.Errorf("introspect: asking: %w", err)
	}
	return listeners, nil
}

// listener reads a row of listenersSQL.
func listener(row pgx.CollectableRow) (s Silent, err error) {
	err = row.Scan(&s.Session, &s.ApplicationName)
	s.ApplicationName = strings.TrimPrefix(s.ApplicationName, ListenerPrefix)
	return s, err
}

// remaining returns the sessions that still exist. A process that ended after the question is not silent.
func remaining(ctx context.Context, conn *pgx.Conn, silent []Silent) ([]Silent, error) {
	rows, _ := conn.Query(ctx, listenersSQL, pgx.QueryExecModeExec, ListenerPrefix)
	now, err := pgx.CollectRows(rows, listener)
	if err != nil {
		return silent, fmt.Errorf("introspect: looking who is silent: %w", err)
	}
	return slices.DeleteFunc(silent, func(s Silent) bool { return !slices.Contains(now, s) }), nil
}

// inTheWay reports whether a candidate is in the way of a resignation. It is if it could lead before the
// candidate that is to lead. It also is if it is that candidate and does not know it yet.
func (r Request) inTheWay(e Election) bool {
	return (e.State == "follower" || e.State == "acquiring") && e.StandsBack == (e.Node == r.To)
}

// prefers reports whether a candidate is the one that is to lead.
func (r Request) prefers(e Election) bool { return e.Node == r.To }

func (r Request) leadsAlready(e Election) bool { return e.Node == r.To && e.State == "leader" }
