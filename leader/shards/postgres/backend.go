package postgres

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/txguard"
	"github.com/pglatch/pglatch/leader/internal/pgreach"
	"github.com/pglatch/pglatch/leader/shards/driver"
	"github.com/pglatch/pglatch/leader/shards/postgres/internal/group"
)

// A Backend is one node's access to a group of shards on PostgreSQL. It implements driver.Backend,
// driver.Operator and driver.Observer, and its sessions implement driver.Binder. Its methods are safe for
// concurrent use.
type Backend struct {
	config Config
	group  group.Group
	plain  *pgsession.Dialer // for connections that carry no lock
	guards *txguard.Statements
	room   room
	waits  waits

	mu       sync.Mutex
	sessions map[*lockSession]bool // open sessions
}

var _ interface {
	driver.Backend
	driver.Operator
	driver.Observer
} = (*Backend)(nil)

// New returns a Backend without connecting. It fails if a field of config is invalid. No error quotes a
// password.
func New(config Config) (*Backend, error) {
	config, cc, err := config.validated()
	if err != nil {
		return nil, err
	}
	config.ConnConfig = cc.Copy()
	b := &Backend{config: config, sessions: map[*lockSession]bool{}, group: group.Group{
		Namespace: config.Namespace, Terms: pgtable.Quote(config.Table),
		Members: pgtable.Quote(config.Table + memberSuffix), Orders: pgtable.Quote(config.Table + orderSuffix),
	}}
	b.plain, b.guards = b.newDialer("", 0, nil), newGuards(b.group.Terms)
	return b, nil
}

func (b *Backend) newDialer(applicationName string, t time.Duration, notified func(uint32, string)) *pgsession.Dialer {
	return pgsession.NewDialer(pgsession.Config{
		ConnConfig: b.config.ConnConfig, BeforeConnect: b.config.BeforeConnect, Connect: b.config.Connect,
		T: t, ApplicationName: applicationName, Notified: notified,
	})
}

// Sessions returns 2: half of a node's shards are on each of two connections.
func (b *Backend) Sessions() int { return 2 }

// Open implements driver.Backend. ttl is from 500 ms to 24 h: the server ends a session that was silent for
// that long. The identity is the session's application_name, of which PostgreSQL keeps 63 bytes. A longer
// identity is shortened in the middle.
func (b *Backend) Open(ctx context.Context, self driver.Member, ttl time.Duration) (driver.Session, error) {
	if err := pgreach.Check(self.Identity, "use text that no other node has", ttl); err != nil {
		return nil, err
	}
	o := newSession(b, ttl)
	o.dialer = b.newDialer(pgsession.ApplicationName(self.Identity), ttl, o.notified)
	s, err := o.dialer.Dial(ctx)
	if err != nil {
		return nil, b.failed(err)
	}
	o.session, o.pid = s, s.PID()
	_, err = call(ctx, o, func() (struct{}, error) { return struct{}{}, o.join(self) })
	if b.config.CreateTable && sqlstate.Of(err) == sqlstate.UndefinedTable {
		if err = b.Migrate(ctx); err == nil {
			_, err = call(ctx, o, func() (struct{}, error) { return struct{}{}, o.join(self) })
		}
	}
	if err != nil {
		_ = o.Close() // always returns nil
		return nil, fmt.Errorf("shards: joining %s: %w", b.config.Namespace, err)
	}
	b.mu.Lock()
	b.sessions[o] = true
	b.mu.Unlock()
	o.introspect(self.Identity)
	return o, nil
}

// join makes the session a member.
func (o *lockSession) join(self driver.Member) error {
	g, s := o.backend.group, o.session
	if err := pgtable.Durable(s); err != nil {
		return err
	}
	if err := group.LockTimeout(s, o.lockWait()); err != nil {
		return err
	}
	// An empty claim and a look detect missing rights.
	if _, err := g.Claim(s, nil, 0, o.patience(context.Background())); err != nil {
		return err
	}
	if _, err := g.Look(s, 0); err != nil {
		return err
	}
	if _, err := s.Query("LISTEN " + pgx.Identifier{g.Channel()}.Sanitize() + "; SELECT pg_catalog.pg_backend_pid()"); err != nil {
		return err
	}
	// Take the lock first: a row without the lock counts as that of an ended session.
	if ok, err := s.Try(g.Member(), session.Shared); err != nil || !ok {
		return fmt.Errorf("the lock of the members is held in exclusive mode, which no node does: %w", err)
	}
	if err := o.announce(self); err != nil {
		return err
	}
	_, err := s.Query(fmt.Sprintf(sweepSQL, g.Members, g.NameSQL(), group.HoldersSQL(g.Member())))
	return err
}

// sweepSQL deletes the announcements of ended sessions, except rows that another session is writing at this
// moment. A new session with the same pid announces itself later, and its row is not the one that was seen.
const sweepSQL = `WITH over AS MATERIALIZED (
	SELECT m.pid, m.announced FROM %[1]s AS m WHERE m.shards = %[2]s AND m.pid NOT IN (%[3]s)
), gone AS (
	DELETE FROM %[1]s AS m USING over WHERE m.shards = %[2]s AND m.pid = over.pid AND m.announced = over.announced
)
SELECT pg_catalog.pg_backend_pid()`
