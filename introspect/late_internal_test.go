package introspect

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

// present is a part that is connected.
type present struct{ part }

func (present) Connected() bool { return true }

// asked asks a process that answers, and a session that ends without an answer. It returns when both are so, before it
// takes an answer.
func asked(t *testing.T) (conn *pgx.Conn, g *gathering, answers *int) {
	t.Helper()
	dsn := pgtest.DSN(t)
	conn, judge := pgtest.Connect(t, dsn), pgtest.Connect(t, dsn)
	cc, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	m := Join(Member{Conn: cc, ApplicationName: "app", Source: present{part(namespace.Must(1, "order").ID(1))}})
	t.Cleanup(m.Leave)
	m.Connected()
	ended := pgtest.Connect(t, dsn)
	_, err = ended.Exec(t.Context(), "SELECT set_config('application_name', $1, false)", ListenerPrefix+"ended")
	require.NoError(t, err)
	seen := func(condition string) func() bool {
		return func() bool {
			var n int
			require.NoError(t, judge.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "+condition).Scan(&n))
			return n == 1
		}
	}
	await.Until(t, await.Soon, seen("application_name = 'pglatch answers: app' AND state = 'idle' AND query ~ '^LISTEN '"), "nobody listens")

	private, public, err := newSeal()
	require.NoError(t, err)
	c := call{Version: 1, Reply: replyPrefix + random(), Key: public, Question: &Question{}}
	payload, err := json.Marshal(c)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "LISTEN "+c.Reply)
	require.NoError(t, err)
	silent, err := notify(t.Context(), conn, string(payload))
	require.NoError(t, err)
	require.Len(t, silent, 2)
	await.Until(t, await.Soon, seen("application_name = 'pglatch answers: app' AND state = 'idle' AND query ~ 'pg_notify'"), "nobody answers")
	require.NoError(t, ended.Close(t.Context()))
	await.Until(t, await.Soon, func() bool { return !seen("application_name = 'pglatch answers: ended'")() }, "the session does not end")
	answers = new(int)
	return conn, newGathering(c.Reply, private, silent, func(uint32, message) bool { *answers++; return true }), answers
}

// over is the time in which answers are awaited, when it is over.
func over(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func TestAnAnswerThatArrivedWhileTheAskerHadNoCPUTimeCounts(t *testing.T) {
	t.Parallel()
	conn, g, answers := asked(t)
	silent, err := g.gather(t.Context(), over(t), conn)
	require.NoError(t, err)
	assert.Equal(t, 1, *answers)
	assert.Empty(t, silent, "and a process that has ended is not silent")
}

func TestASessionThatExistsAndDoesNotAnswerIsSilent(t *testing.T) {
	t.Parallel()
	conn, g, answers := asked(t)
	g.reply = "another channel" // on which nobody answers
	silent, err := g.gather(t.Context(), over(t), conn)
	require.NoError(t, err)
	assert.Zero(t, *answers)
	require.Len(t, silent, 1, "control")
	assert.Equal(t, "app", silent[0].ApplicationName)
}
