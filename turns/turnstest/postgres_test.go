package turnstest_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/broken"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/turns"
	"github.com/pglatch/pglatch/turns/turnstest"
)

// A postgres is a database of PostgreSQL.
type postgres struct {
	ctx    context.Context //nolint:containedctx // of the test
	dsn    string
	faults []string // pairs: parts of the schema, and what is there instead
}

func newPostgres(t *testing.T, faults ...string) turnstest.Database {
	t.Helper()
	for i := 0; i < len(faults); i += 2 {
		require.Contains(t, turns.Schema(), faults[i])
	}
	return &postgres{context.WithoutCancel(t.Context()), pgtest.DSN(t), faults}
}

func (d *postgres) Open(config turns.Config) (*turnstest.Process, error) {
	pool, err := pgxpool.New(d.ctx, d.dsn+"&pool_max_conns=20")
	if err != nil {
		return nil, err
	}
	p := &turnstest.Process{Pool: pool}
	if p.Locker, err = advisory.Open(d.ctx, advisory.Config{DSN: d.dsn, LocksPerConn: 100}); err == nil {
		config.Pool, config.Locker = p.Pool, p.Locker
		p.Mailbox, err = turns.Open(d.ctx, config)
	}
	if err == nil {
		err = p.Migrate(d.ctx)
	}
	if err == nil && len(d.faults) > 0 {
		_, err = p.Pool.Exec(d.ctx, strings.NewReplacer(d.faults...).Replace(turns.Schema()), pgx.QueryExecModeSimpleProtocol)
	}
	if err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func TestPostgreSQLConforms(t *testing.T) {
	t.Parallel()
	turnstest.Run(t, turnstest.Harness{New: func(t *testing.T) turnstest.Database {
		t.Helper()
		return newPostgres(t)
	}})
}

// faults are those of a schema, and the case that finds each.
var faults = map[string]struct {
	found string
	pairs []string
}{
	"senders do not wait":              {"a send waits for the end", []string{"IF pg_try_advisory_xact_lock(key) THEN", "IF true THEN"}},
	"IDs are not looked for":           {"a resend does nothing", []string{"RETURN 'again ' || n;", "n := n;"}},
	"bodies have no limit":             {"limits are typed", []string{"ELSIF octet_length(p_body) > box.max_bytes THEN", "ELSIF false THEN"}},
	"the depth has no limit":           {"limits are typed", []string{"IF last - first + 1 >= box.max_depth THEN", "IF false THEN"}},
	"busy entities take messages":      {"an entity that is busy", []string{"IF known AND box.refuse THEN", "IF false THEN"}},
	"the last message is first":        {"messages have their turns", []string{"ORDER BY x.number LIMIT c.most", "ORDER BY x.number DESC LIMIT c.most"}},
	"a batch is one message":           {"a turn takes one message", []string{"ORDER BY x.number LIMIT c.most", "ORDER BY x.number LIMIT 1"}},
	"more comes again":                 {"what comes while", []string{"x.number > c.after", "x.number > 0"}},
	"the youngest entity is first":     {"the entity that has been ready", []string{"ORDER BY r.ready_at LIMIT p_most", "ORDER BY r.ready_at DESC LIMIT p_most"}},
	"values are not stored":            {"a commit stores a value", []string{"value = p_value WHERE", "value = NULL WHERE"}},
	"attempts are not counted":         {"attempts that fail", []string{"attempts = e.attempts + 1", "attempts = 1"}},
	"dead letters stop nobody":         {"a dead letter stops", []string{"IF p_stop THEN", "IF false THEN"}},
	"a retry wakes no stopped entity":  {"a dead letter stops", []string{"CASE WHEN e.state = 'stopped' THEN 'ready' ELSE e.state END", "e.state"}},
	"a busy entity refuses a resend":   {"an entity that is busy", []string{"IF p_id <> '' THEN", "IF p_id <> '' AND NOT box.refuse THEN"}},
	"any token commits":                {"only the current turn", []string{"x.node = p_node AND x.token = p_token AND", "x.entity = p_entity AND", "e.node = p_node AND e.token = p_token AND", "e.entity = p_entity AND"}},
	"all other nodes are dead":         {"a node that lives", []string{"AND pg_try_advisory_xact_lock_shared(n.key)", "", "IF NOT coalesce((SELECT pg_try_advisory_xact_lock(n.key)", "IF NOT coalesce((SELECT true"}},
	"lost claims are never given back": {"a claim without an answer", []string{"AND e.token <> ALL (p_tokens)", "AND false"}},
	"reasons are lost":                 {"an interrupt from", []string{"SET interrupt = p_reason", "SET interrupt = ''"}},
	"turns that were not tried count":  {"a node that shuts down", []string{"e.after, greatest(e.attempts - 1, 0), p_pause", "e.after, e.attempts, p_pause"}},
}

func TestTheSuiteFindsWhatIsBroken(t *testing.T) {
	found := map[string]string{}
	for name, f := range faults {
		found[name] = f.found
	}
	broken.Run(t, func(t *testing.T, fault string) {
		t.Helper()
		turnstest.Run(t, turnstest.Harness{New: func(t *testing.T) turnstest.Database {
			t.Helper()
			return newPostgres(t, faults[fault].pairs...)
		}})
	}, found)
}

func TestTheServerInMemoryConforms(t *testing.T) {
	t.Parallel()
	turnstest.Run(t, turnstest.Harness{New: func(*testing.T) turnstest.Database { return turnstest.NewServer() }, Around: synctest.Test})
}

func TestATestSeesTheStatementsThatWereCommitted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := turnstest.NewServer()
		p, err := server.Open(turns.Config{Name: "chat", Namespace: chats})
		require.NoError(t, err)
		defer p.Close()
		ctx, stop := context.WithCancel(t.Context())
		served := make(chan error)
		go func() {
			served <- p.Serve(ctx, func(ctx context.Context, turn *turns.Turn) error {
				return turn.Commit(ctx, func(tx pgx.Tx) error {
					tag, err := tx.Exec(ctx, "INSERT INTO replies VALUES ($1, $2)", turn.Messages()[0].Number, string(turn.Messages()[0].Body))
					assert.EqualValues(t, 1, tag.RowsAffected())
					if turn.Attempt() == 1 {
						return assert.AnError // what it did is rolled back
					}
					return err
				})
			})
		}()
		start := time.Now()
		ticket, err := p.Post(ctx, chats.ID(7), turns.Message{ID: "1", Body: []byte("hello")})
		require.NoError(t, err)
		o, err := p.Wait(ctx, ticket)
		require.NoError(t, err)
		assert.Equal(t, turns.Done, o.State)
		assert.Equal(t, []turnstest.Statement{{SQL: "INSERT INTO replies VALUES ($1, $2)", Args: []string{"1", "hello"}}}, server.Statements())
		assert.Less(t, time.Since(start), 3*time.Second, "by the clock of the bubble: the pause of the first attempt")
		assert.Empty(t, server.Locks().Holders(chats.ID(7)))
		stop()
		require.NoError(t, <-served)
	})
}

func TestMain(m *testing.M) { pgtest.Main(m) }

var chats = namespace.Must(1, "chat")
