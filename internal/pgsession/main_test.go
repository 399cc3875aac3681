package pgsession

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	awaiting "github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const patience = awaiting.Soon

var (
	pairKey   = namespace.Pair(7, 9).Tag()
	singleKey = namespace.SingleRaw(7<<32 | 9).Tag()
)

// newPool opens a pool of long-lived sessions on the database; change may be nil.
func newPool(t *testing.T, dsn string, change func(*Config)) *Pool {
	t.Helper()
	p, err := openPool(t, dsn, change)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

func openPool(t *testing.T, dsn string, change func(*Config)) (*Pool, error) {
	t.Helper()
	cc, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	config := Config{ConnConfig: cc, MaxSessions: 10, T: time.Minute, ApplicationName: "pglatch test"}
	if change != nil {
		change(&config)
	}
	return Open(t.Context(), config)
}

// briefly makes sessions leases that are pinged every 2 s, and that outlast a pause of 3 s.
func briefly(c *Config) { c.T = 6 * time.Second }

// acquire takes a session that is closed at the end of the test.
func acquire(t *testing.T, p *Pool) *Session {
	t.Helper()
	s, err := p.Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { s.Close(false) })
	return s.(*Session)
}

// take acquires a session and a free lock on it.
func take(t *testing.T, p *Pool, tag namespace.Tag) *Session {
	t.Helper()
	s := acquire(t, p)
	ok, err := s.Try(tag, session.Exclusive)
	require.NoError(t, err)
	require.True(t, ok)
	return s
}

// unlockAll gives back all that the session holds, behind its back.
func unlockAll(t *testing.T, s *Session) {
	t.Helper()
	_, err := s.Query("SELECT pg_catalog.pg_advisory_unlock_all(), pg_catalog.pg_backend_pid()")
	require.NoError(t, err)
	s.locks = 0
}

// watch watches the session and returns where its loss is reported.
func watch(s *Session) <-chan error {
	lost := make(chan error, 1)
	s.Watch(func(err error) { lost <- err })
	return lost
}

// requireLoss waits for the report of a loss.
func requireLoss(t *testing.T, s *Session, lost <-chan error) *session.LostError {
	t.Helper()
	err := awaiting.Receive(t, patience, lost, "the loss was not reported")
	var loss *session.LostError
	require.ErrorAs(t, err, &loss)
	require.ErrorIs(t, err, session.ErrLost)
	assert.Equal(t, session.Lost, s.state(time.Now()))
	return loss
}

func requireNoLoss(t *testing.T, s *Session, lost <-chan error) {
	t.Helper()
	select {
	case err := <-lost:
		require.NoError(t, err)
	default:
	}
	require.NotEqual(t, session.Lost, s.state(time.Now()))
}

// watched waits until the session is under watch.
func watched(t *testing.T, s *Session) {
	t.Helper()
	awaiting.Until(t, patience, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.cancelWatch != nil
	})
}

// A bystander is an ordinary connection: the judge of what the server says, or
// another client.
type bystander struct {
	t    *testing.T
	conn *pgconn.PgConn
}

func connect(t *testing.T, dsn string) bystander {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return bystander{t, conn}
}

// exec returns the columns of the last row, as text.
func (b bystander) exec(sql string) []string {
	b.t.Helper()
	row, err := b.try(sql)
	require.NoError(b.t, err)
	return row
}

func (b bystander) try(sql string) (row []string, err error) {
	results, err := b.conn.Exec(context.Background(), sql).ReadAll()
	if err != nil {
		return nil, err
	}
	for _, r := range results {
		for _, values := range r.Rows {
			row = row[:0]
			for _, v := range values {
				row = append(row, string(v))
			}
		}
	}
	return row, nil
}

// holds reports whether a backend holds the lock.
func (b bystander) holds(pid uint32, tag namespace.Tag) bool {
	b.t.Helper()
	return b.exec("SELECT pg_catalog.count(*) > 0 FROM pg_catalog.pg_locks WHERE " + WhereKey(tag) +
		" AND granted AND pid = " + format(pid))[0] == "t"
}

// locks counts the advisory locks of a backend, granted or waited for.
func (b bystander) locks(pid uint32) string {
	b.t.Helper()
	return b.exec("SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND pid = " + format(pid))[0]
}

// waits blocks until a backend waits for an advisory lock.
func (b bystander) waits(pid uint32) {
	b.t.Helper()
	awaiting.Until(b.t, patience, func() bool {
		return b.exec("SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND NOT granted AND pid = " + format(pid))[0] == "1"
	})
}

// gone blocks until a backend has ended.
func (b bystander) gone(pid uint32) {
	b.t.Helper()
	awaiting.Until(b.t, patience, func() bool {
		return b.exec("SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_activity WHERE pid = " + format(pid))[0] == "0"
	})
}

func (b bystander) cancel(pid uint32) { _, _ = b.try("SELECT pg_cancel_backend(" + format(pid) + ")") }

// hail cancels a few times, a millisecond apart: a short statement is hard to hit.
func (b bystander) hail(pid uint32) {
	_, _ = b.try("SELECT pg_cancel_backend(" + format(pid) + "), pg_sleep(0.001) FROM generate_series(1, 3)")
}

func (b bystander) terminate(pid uint32) { b.exec("SELECT pg_terminate_backend(" + format(pid) + ")") }
