package introspect

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/namespace"
)

// The times after which a responder connects, checks whether it is needed, and retries.
const (
	listenAfter = time.Second
	lookEvery   = 30 * time.Second
	maxPause    = time.Minute
)

// sendBound is the server's time limit to say who asks, and again to receive the answer. It excludes the time in which a
// busy process makes a large answer.
const sendBound = 5 * time.Second

// restBetween bounds the work that questions can cause in a process: a hundred answers a second.
const restBetween = 10 * time.Millisecond

// A responder answers for the members of one process in one database, on one connection.
type responder struct {
	id      string
	running atomic.Bool
	calls   sync.Mutex // held while sources are called
	work    sync.WaitGroup

	mu      sync.Mutex
	members map[*Membership]struct{}
	joined  int                // members so far
	cancel  context.CancelFunc // of the goroutine that runs
}

// start runs the responder, unless it runs already.
func (r *responder) start(m *Membership) {
	if r.running.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, member := r.members[m]; !member || r.running.Load() {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	r.running.Store(true)
	r.work.Go(func() {
		defer cancel()
		r.run(ctx)
	})
}

// run listens as long as a source has a connection.
func (r *responder) run(ctx context.Context) {
	for failures, delay := 0, listenAfter; ; {
		if pause.For(ctx, delay) != nil || r.idle() {
			return
		}
		all := r.sources()
		if len(all) == 0 {
			return
		}
		m := all[failures%len(all)] // the settings of any member may serve to connect
		conn, err := m.dialer().Listen(ctx, askChannel)
		if err == nil {
			failures = 0
			err = r.serve(ctx, conn)
			pgsession.Disconnect(conn)
			if err == nil { // nobody needs it any more
				return
			}
		}
		if ctx.Err() != nil {
			return
		}
		if failures == 0 {
			m.Logger.Info("answers_interrupted", slog.Any("error", err))
		}
		failures++
		delay = pause.Backoff(failures, listenAfter, maxPause)
	}
}

// serve answers until the connection ends. It returns nil when nobody needs the connection any more.
func (r *responder) serve(ctx context.Context, conn *pgx.Conn) error {
	for {
		wait, cancel := context.WithTimeout(ctx, lookEvery)
		n, err := conn.WaitForNotification(wait)
		cancel()
		switch {
		case err == nil:
			if err := r.respond(ctx, conn, n); err != nil {
				return err
			}
			if err := pause.For(ctx, restBetween); err != nil {
				return err
			}
		case ctx.Err() != nil || conn.IsClosed() || !pgconn.Timeout(err):
			return err
		case r.idle():
			return nil
		}
	}
}

// respond answers one question. It ignores payloads that are no question, because anybody can send to the
// channel.
func (r *responder) respond(ctx context.Context, conn *pgx.Conn, n *pgconn.Notification) error {
	c, err := readCall(n.Payload)
	if err != nil {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, sendBound)
	asker, err := rightsOf(asking, conn, n.PID, r.readers())
	cancel()
	if err != nil {
		return err
	}
	var m message
	if c.Question != nil {
		m.Answer = r.answer(*c.Question, asker)
	} else {
		m.Replies = r.request(*c.Request, asker)
	}
	text, err := seal(c.sealed, m)
	if err != nil {
		return nil // a bug, but no reason to stop answering
	}
	parts, err := split(text)
	if err != nil {
		return nil // the question asked for too much
	}
	sending, cancel := context.WithTimeout(ctx, sendBound)
	defer cancel()
	_, err = conn.Exec(sending, "SELECT pg_catalog.pg_notify($1, part) FROM pg_catalog.unnest($2::pg_catalog.text[]) AS part", pgx.QueryExecModeExec, c.Reply, parts)
	return err
}

// answer collects the answers of the sources. The limit is for all of them together.
func (r *responder) answer(q Question, asker rights) *Answer {
	if q.Limit <= 0 || q.Limit > MaxLimit {
		q.Limit = DefaultLimit
	}
	a, named := &Answer{}, false
	r.each(func(m *Membership) {
		part, hides := Answer{}, m.Config.hides(asker)
		if _, entity, _ := strings.Cut(q.Prefix, "/"); entity == "" || !hides {
			m.Source.Answer(q, &part)
		}
		process := m.Config.process(time.Now())
		part.services(func(s *string) { *s = m.Config.Service })
		if a.Process.ID == "" || m.Config.Service != "" && !named {
			a.Process, named = process, m.Config.Service != ""
		}
		if hides {
			part.hide()
		}
		a.Locks, a.Waits = append(a.Locks, part.Locks...), append(a.Waits, part.Waits...)
		a.Elections, a.Groups = append(a.Elections, part.Elections...), append(a.Groups, part.Groups...)
		a.AllLocks, a.AllWaits = a.AllLocks+part.AllLocks, a.AllWaits+part.AllWaits
	})
	if a.Process.ID == "" {
		a.Process = Config{}.process(time.Now())
	}
	a.services(func(s *string) {
		if *s == a.Process.Service {
			*s = ""
		}
	})
	a.sort()
	a.Locks = a.Locks[:min(len(a.Locks), q.Limit)]
	a.Waits = a.Waits[:min(len(a.Waits), q.Limit)]
	return a
}

// services calls f with the service of each lock, wait, election and group.
func (a *Answer) services(f func(service *string)) {
	for i := range a.Locks {
		f(&a.Locks[i].Service)
	}
	for i := range a.Waits {
		f(&a.Waits[i].Service)
	}
	for i := range a.Elections {
		f(&a.Elections[i].Service)
	}
	for i := range a.Groups {
		f(&a.Groups[i].Service)
	}
}

// hide removes what the process does not show.
func (a *Answer) hide() {
	for i := range a.Locks {
		a.Locks[i].Key, a.Locks[i].Label = hidden(a.Locks[i].Key), ""
		a.Locks[i].Semaphore = hidden(a.Locks[i].Semaphore)
	}
	for i := range a.Waits {
		a.Waits[i].Key, a.Waits[i].Label = hidden(a.Waits[i].Key), ""
	}
	for i := range a.Elections {
		e := &a.Elections[i]
		e.Error = strings.ReplaceAll(e.Error, e.Key, hidden(e.Key))
		e.Key = hidden(e.Key)
	}
}

// sort puts first the locks and waits that are most likely to be in the way.
func (a *Answer) sort() {
	slices.SortStableFunc(a.Locks, func(x, y Lock) int {
		return cmp.Or(cmp.Compare(y.OldestWait, x.OldestWait), cmp.Compare(y.Age, x.Age))
	})
	slices.SortStableFunc(a.Waits, func(x, y Wait) int { return cmp.Compare(y.Age, x.Age) })
}

// request makes the sources carry out a request.
func (r *responder) request(req Request, asker rights) (all []Reply) {
	r.each(func(m *Membership) {
		ask := m.Source.Request
		if !asker.request {
			ask = m.refuse
		}
		for _, reply := range ask(req) {
			reply.Process = m.Config.process(time.Now())
			if m.Config.hides(asker) {
				reply.Key = hidden(reply.Key)
			}
			all = append(all, reply)
			m.Logger.Info("request_received", slog.String("request", string(req.Kind)), slog.String("key", reply.Key),
				slog.Bool("done", reply.Done), slog.String("refused", reply.Refused))
		}
	})
	return all
}

// each calls f for each source that has not left.
func (r *responder) each(f func(*Membership)) {
	for _, m := range r.sources() {
		r.calls.Lock()
		r.mu.Lock()
		_, member := r.members[m]
		r.mu.Unlock()
		if member {
			f(m)
		}
		r.calls.Unlock()
	}
}

// sources returns the members, in the order in which they joined.
func (r *responder) sources() []*Membership {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*Membership, 0, len(r.members))
	for m := range r.members {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *Membership) int { return cmp.Compare(a.place, b.place) })
	return all
}

// hidden returns a key's text without the entity. It does not change the text of a raw key.
func hidden(key string) string {
	if namespace, _, ok := strings.Cut(key, "/"); ok {
		return namespace + "/…"
	}
	return key
}

// idle ends the responder if no source has a connection. A source may get its first connection at the
// same time. Then either the source waits for mu and finds running false, or idle sees its connection.
func (r *responder) idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running.Store(false)
	for m := range r.members {
		if m.Source.Connected() {
			r.running.Store(true)
			return false
		}
	}
	return true
}

// refuse rejects a request of a role that may not send any, if the request concerns the source.
func (m *Membership) refuse(r Request) []Reply {
	a := Answer{}
	m.Source.Answer(Question{Tags: []namespace.Tag{r.Tag}, Limit: 1}, &a)
	key := ""
	for _, l := range a.Locks {
		key = l.Key
	}
	for _, e := range a.Elections {
		key = e.Key
	}
	if key == "" {
		return nil
	}
	return []Reply{{Key: key, Refused: "the role that asks could not end this process' sessions either: it must be the same role, a member of it or of pg_signal_backend, or a superuser"}}
}
