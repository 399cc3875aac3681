package introspect

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/bubble"
	"github.com/pglatch/pglatch/internal/test/frozen"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/namespace"
)

// A part is a source that holds, waits for, leads and owns one thing each.
type part namespace.Key

func (part) Connected() bool         { return false }
func (part) Request(Request) []Reply { return nil }
func (p part) Answer(_ Question, into *Answer) {
	key := namespace.Key(p)
	into.Locks = append(into.Locks, Lock{Key: key.String(), Tag: key.Tag()})
	into.Waits = append(into.Waits, Wait{Key: key.String(), Tag: key.Tag()})
	into.Elections = append(into.Elections, Election{Key: key.String()})
	into.Groups = append(into.Groups, Group{Name: key.String(), Members: key.Tag()})
}

// answerOf returns the answer of a process with a part of each service.
func answerOf(t *testing.T, services ...string) *Answer {
	t.Helper()
	cc, err := pgx.ParseConfig("postgres://localhost/" + t.Name())
	require.NoError(t, err)
	var of *responder
	for i, service := range services {
		m := Join(Member{Conn: cc, Config: Config{Service: service}, Source: part(namespace.Must(1, "order").ID(int64(i)))})
		t.Cleanup(m.Leave)
		of = m.of
	}
	return of.answer(Question{}, rights{read: true})
}

// servicesOf returns the service of each lock, wait, election and group.
func servicesOf(a *Answer) map[string]string {
	all := map[string]string{}
	a.services(func(s *string) { *s = a.Process.As(*s).Service })
	for _, l := range a.Locks {
		all["lock "+l.Key] = l.Service
	}
	for _, w := range a.Waits {
		all["wait "+w.Key] = w.Service
	}
	for _, e := range a.Elections {
		all["election "+e.Key] = e.Service
	}
	for _, g := range a.Groups {
		all["group "+g.Name] = g.Service
	}
	return all
}

func TestEachPartOfAProcessHasItsOwnService(t *testing.T) {
	t.Parallel()
	a := answerOf(t, "", "billing", "report", "billing")
	assert.Equal(t, "billing", a.Process.Service, "of the first that has one")
	all := servicesOf(a)
	assert.Len(t, all, 16)
	for what, service := range all {
		want := "billing" // also of the first, which has none
		if strings.HasSuffix(what, "/2") {
			want = "report"
		}
		assert.Equal(t, want, service, what)
	}
}

// An answer of one service has the form that it had before parts had services.
func TestAnAnswerOfOneServiceHasItsOldForm(t *testing.T) {
	t.Parallel()
	services := func(a *Answer) int {
		text, err := json.Marshal(message{Answer: a})
		require.NoError(t, err)
		return strings.Count(string(text), `"service":`)
	}
	a := answerOf(t, "billing", "billing")
	assert.Equal(t, 1, services(a), "the process's")
	for what, service := range servicesOf(a) {
		assert.Equal(t, "billing", service, what)
	}
	assert.Equal(t, 1+4, services(answerOf(t, "billing", "report")), "control")
}

func TestADeadlockInsideAProcessNamesTheServices(t *testing.T) {
	t.Parallel()
	first, second := namespace.Must(1, "order").ID(1), namespace.Must(1, "order").ID(2)
	wait := func(id uint64, service string, wants, holds namespace.Key) Wait {
		return Wait{ID: id, Service: service, Key: wants.String(), Tag: wants.Tag(), Holds: []namespace.Tag{holds.Tag()}}
	}
	cycles := Answers{Answers: []Answer{{
		Process: Process{ID: "a", Service: "billing", Host: "web-1", PID: 7},
		Waits:   []Wait{wait(1, "", second, first), wait(2, "report", first, second)},
	}}}.Cycles()
	require.Len(t, cycles, 1)
	assert.Equal(t, "billing@web-1 (7) waits for order/2, which report@web-1 (7) holds, which waits for order/1, which billing@web-1 (7) holds", cycles[0].String())
}

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

func TestQuestionsAndAnswersAreFrozen(t *testing.T) {
	t.Parallel()
	facts := append(frozen.JSON[call](t, "call"), frozen.JSON[message](t, "message")...)
	facts = append(facts, frozen.Constants(t, ".", "askChannel|replyPrefix|partSize|maxParts|ListenerPrefix|Ask[A-Z].*|askStandBack")...)
	facts = append(facts, fmt.Sprintf("sealed for %q: KEM %#x, KDF %#x, AEAD %#x", answerInfo, sealKEM.ID(), sealKDF.ID(), sealAEAD.ID()))
	frozen.Check(t, "messages", facts)
}

// A leaving source is asked whether it is connected, and leaves in the same instant.
type leaving struct{ member *Membership }

func (l *leaving) Connected() bool {
	delete(l.member.of.members, l.member) // the responder's mutex is held, as by Leave
	return true
}

func (*leaving) Answer(Question, *Answer)                        {}
func (*leaving) Request(Request) []Reply                         { return nil }
func noDial(context.Context, *pgx.ConnConfig) (*pgx.Conn, error) { panic("nobody needs a connection") }

func TestAResponderWhoseLastSourceLeavesWhileItLooksEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		cc, err := pgx.ParseConfig("postgres://localhost/nowhere")
		require.NoError(t, err)
		source := new(leaving)
		source.member = Join(Member{Conn: cc, Connect: noDial, Source: source})
		source.member.Connected()
		bubble.Sleep(time.Minute)
		source.member.Leave()
	})
}
