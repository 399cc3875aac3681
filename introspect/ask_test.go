package introspect_test

import (
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// orders is a source that holds locks on orders.
type orders struct {
	n        int
	label    string
	election *introspect.Election // nil = none
	gone     atomic.Bool
	called   chan struct{} // gets a value for each answer; nil = nobody looks
	block    chan struct{} // holds answers up until it is closed; nil = not
	mu       sync.Mutex
	requests []introspect.Request
}

func (o *orders) Connected() bool { return !o.gone.Load() }

func (o *orders) Answer(q introspect.Question, into *introspect.Answer) {
	if o.called != nil {
		o.called <- struct{}{}
	}
	if o.block != nil {
		<-o.block
	}
	for i := range o.n {
		key := namespace.Must(7, "order").ID(int64(i))
		if !q.Matches(key.Tag(), key.String()) {
			continue
		}
		into.AllLocks++
		if o.election != nil {
			into.Elections = []introspect.Election{*o.election}
		}
		into.Locks = append(into.Locks, introspect.Lock{Key: key.String(), Tag: key.Tag(), Label: o.label, Age: time.Duration(i) * time.Second})
	}
}

func (o *orders) Request(r introspect.Request) []introspect.Reply {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.requests = append(o.requests, r)
	return []introspect.Reply{{Key: "order/1", Done: true}}
}

// join makes a source one that answers, and returns when it listens.
func join(t *testing.T, dsn string, config introspect.Config, source introspect.Source, changes ...func(*introspect.Member)) *introspect.Membership {
	t.Helper()
	cc, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	m := introspect.Member{Conn: cc, ApplicationName: "orders@test", Config: config, Source: source}
	for _, change := range changes {
		change(&m)
	}
	member := introspect.Join(m)
	t.Cleanup(member.Leave)
	member.Connected()
	return member
}

// listening waits until n sessions listen.
func listening(t *testing.T, conn *pgx.Conn, n int) {
	t.Helper()
	await.Until(t, 20*time.Second, func() bool {
		var count int
		// LISTEN is the last of what a new one does, and its text is what the view shows then. Before, it is idle, too.
		err := conn.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND application_name LIKE 'pglatch answers: %' AND ($1 = 0 OR state = 'idle' AND query ~ '^LISTEN ')`, n).Scan(&count)
		return err == nil && count == n
	}, "sessions that listen")
}

func TestAProcessAnswersWhatItIsAsked(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := pgtest.Connect(t, dsn)
	join(t, dsn, introspect.Config{Service: "billing", Version: "v1.2.3"}, &orders{n: 100, label: "nightly"})
	listening(t, conn, 1)

	answers, err := introspect.Ask(t.Context(), conn, introspect.Question{Timeout: 20 * time.Second, Prefix: "order/9", Limit: 3})
	require.NoError(t, err)
	require.Empty(t, answers.Silent)
	require.Len(t, answers.Answers, 1)
	a := answers.Answers[0]
	require.Equal(t, "billing", a.Process.Service)
	require.Equal(t, "v1.2.3", a.Process.Version)
	require.NotEmpty(t, a.Process.ID)
	require.WithinDuration(t, time.Now(), a.Process.Clock, time.Minute)
	require.Equal(t, 11, a.AllLocks, "9 and 90 to 99")
	require.Len(t, a.Locks, 3)
	require.Equal(t, "order/99", a.Locks[0].Key, "the oldest first")
	require.Equal(t, "nightly", a.Locks[0].Label)
	require.Equal(t, 99*time.Second, a.Locks[0].Age)
	require.Equal(t, namespace.Must(7, "order").ID(99).Tag(), a.Locks[0].Tag)

	answers, err = introspect.Ask(t.Context(), conn, introspect.Question{Timeout: 20 * time.Second, Tags: []namespace.Tag{namespace.Must(7, "order").ID(5).Tag()}})
	require.NoError(t, err)
	require.Len(t, answers.Answers[0].Locks, 1)
}

func TestALargeAnswerComesInParts(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := pgtest.Connect(t, dsn)
	join(t, dsn, introspect.Config{}, &orders{n: 5000, label: strings.Repeat("ü€", 20)})
	listening(t, conn, 1)
	var answers introspect.Answers
	await.Until(t, await.Patience, func() bool { // if the server is too busy for it, the process connects again
		var err error
		answers, err = introspect.Ask(t.Context(), conn, introspect.Question{Limit: introspect.MaxLimit, Timeout: 20 * time.Second})
		require.NoError(t, err)
		return len(answers.Answers) == 1
	}, "no answer")
	require.Len(t, answers.Answers[0].Locks, 5000)
	for _, l := range answers.Answers[0].Locks {
		require.Equal(t, strings.Repeat("ü€", 20), l.Label)
	}
}

func TestWhatAProcessHidesIsNotAnswered(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := pgtest.Connect(t, dsn)
	election := &introspect.Election{Key: "job/1", Error: "taking job/1 over: no rights"}
	join(t, dsn, introspect.Config{HideEntities: true}, &orders{n: 3, label: "of Mr X", election: election})
	listening(t, conn, 1)
	answers, err := introspect.Ask(t.Context(), conn, introspect.Question{Timeout: 20 * time.Second, Prefix: "order/"})
	require.NoError(t, err)
	require.Len(t, answers.Answers[0].Locks, 3)
	for _, l := range answers.Answers[0].Locks {
		require.Equal(t, "order/…", l.Key)
		require.Empty(t, l.Label)
	}
	require.Equal(t, "job/…", answers.Answers[0].Elections[0].Key)
	require.Equal(t, "taking job/… over: no rights", answers.Answers[0].Elections[0].Error)
	answers, err = introspect.Ask(t.Context(), conn, introspect.Question{Timeout: 20 * time.Second, Prefix: "order/1"})
	require.NoError(t, err)
	require.Empty(t, answers.Answers[0].Locks, "a prefix must not tell whether an entity is locked")
}

func TestAProcessThatDoesNotAnswerIsSilentAndTheOthersAreHeard(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := pgtest.Connect(t, dsn)
	block := make(chan struct{})
	other := func(m *introspect.Member) { // another process, as far as the database can tell
		m.Conn.Host, m.ApplicationName = "localhost", "stuck@test"
		if cc, err := pgx.ParseConfig(dsn); err == nil && cc.Host == "localhost" {
			m.Conn.Host = "127.0.0.1"
		}
	}
	join(t, dsn, introspect.Config{}, &orders{n: 1})
	stuck := &orders{n: 1, block: block, called: make(chan struct{}, 9)}
	join(t, dsn, introspect.Config{}, stuck, other)
	t.Cleanup(func() { close(block) }) // before it leaves
	listening(t, conn, 2)
	answers, err := introspect.Ask(t.Context(), conn, introspect.Question{Timeout: 12 * time.Second})
	require.NoError(t, err)
	require.Len(t, answers.Answers, 1)
	require.Len(t, answers.Silent, 1)
	require.Equal(t, "stuck@test", answers.Silent[0].ApplicationName)
	require.NotZero(t, answers.Silent[0].Session)
}

func TestNobodyListensForAProgramThatIsSwitchedOffOrHasNoConnection(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := pgtest.Connect(t, dsn)
	require.Nil(t, join(t, dsn, introspect.Config{Off: true}, &orders{n: 1}))
	idle := &orders{n: 1}
	idle.gone.Store(true)
	member := join(t, dsn, introspect.Config{}, idle)
	idle.gone.Store(false)
	member.Connected()
	listening(t, conn, 1) // it begins again
	answers, err := introspect.Ask(t.Context(), conn, introspect.Question{Timeout: 20 * time.Second})
	require.NoError(t, err)
	require.Len(t, answers.Answers, 1)
	member.Leave()
	listening(t, conn, 0)
}

func TestARequestReachesItsProcessOnlyFromARoleThatCouldEndItsSessions(t *testing.T) {
	t.Parallel()
	dsn := pgtest.StartServer(t, pgserver.Options{}).DSN("postgres")
	conn := pgtest.Connect(t, dsn)
	source := &orders{n: 3}
	join(t, dsn, introspect.Config{}, source)
	listening(t, conn, 1)
	request := introspect.Request{Timeout: 20 * time.Second, Kind: introspect.AskRelease, Tag: namespace.Must(7, "order").ID(1).Tag()}

	replies, err := introspect.Send(t.Context(), conn, request)
	require.NoError(t, err)
	require.Len(t, replies, 1)
	require.True(t, replies[0].Done)

	for role, may := range map[string]bool{"asker_plain": false, "asker_member": true, "asker_signal": true} {
		var of []string
		if may {
			of = []string{map[string]string{"asker_member": conn.Config().User, "asker_signal": "pg_signal_backend"}[role]}
		}
		asker := as(t, conn, role, of...)
		replies, err := introspect.Send(t.Context(), asker, request)
		require.NoError(t, err)
		require.Len(t, replies, 1, role)
		require.Equal(t, may, replies[0].Done, "%s: %s", role, replies[0].Refused)
		answers, err := introspect.Ask(t.Context(), asker, introspect.Question{Timeout: 20 * time.Second})
		require.NoError(t, err)
		require.Len(t, answers.Answers, 1, "who may connect may ask")
	}
	require.Len(t, source.requests, 3, "the one that was refused did not reach it")
}

func TestWhatIsNoQuestionIsPassedOver(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := pgtest.Connect(t, dsn)
	join(t, dsn, introspect.Config{}, &orders{n: 1})
	listening(t, conn, 1)
	application := pgtest.Connect(t, dsn)
	_, err := application.Exec(t.Context(), "LISTEN application")
	require.NoError(t, err)
	for _, payload := range []string{
		"", "hello", "{}", `{"v":2,"reply":"pglatch_reply_0123456789abcdef01234567","question":{}}`,
		`{"v":1,"reply":"application","key":"` + publicKey(t) + `","question":{}}`, // it must not send to others' channels
		`{"v":1,"reply":"pglatch_reply_0123456789abcdef01234567","key":"` + publicKey(t) + `"}`,
		`{"v":1,"reply":"pglatch_reply_0123456789abcdef01234567","key":"` + publicKey(t) + `","question":{"limit":-1}}`,
		`{"v":1,"reply":"pglatch_reply_0123456789abcdef01234567","question":{}}`, // an answer that everybody could read
		`{"v":1,"reply":"pglatch_reply_0123456789abcdef01234567","key":"AAAA","question":{}}`,
	} {
		_, err := conn.Exec(t.Context(), "SELECT pg_notify('pglatch_ask', $1)", payload)
		require.NoError(t, err)
	}
	answers, err := introspect.Ask(t.Context(), conn, introspect.Question{Timeout: 20 * time.Second})
	require.NoError(t, err, "it answers what comes after")
	require.Len(t, answers.Answers, 1)
	_, err = conn.Exec(t.Context(), "NOTIFY application, 'end'")
	require.NoError(t, err)
	n, err := application.WaitForNotification(t.Context())
	require.NoError(t, err)
	require.Equal(t, "end", n.Payload, "nothing was sent to the application's channel before")
}

func TestAQuestionThatCannotBeSentSaysSo(t *testing.T) {
	t.Parallel()
	conn := pgtest.Connect(t, pgtest.DSN(t))
	for _, q := range []introspect.Question{{Limit: -1}, {Limit: introspect.MaxLimit + 1}, {Prefix: strings.Repeat("x", 8000)}} {
		_, err := introspect.Ask(t.Context(), conn, q)
		require.ErrorIs(t, err, introspect.ErrQuestion)
	}
	for _, r := range []introspect.Request{{}, {Kind: "shutdown", Tag: namespace.Pair(1, 2).Tag()}, {Kind: introspect.AskDump}} {
		_, err := introspect.Send(t.Context(), conn, r)
		require.ErrorIs(t, err, introspect.ErrQuestion)
	}
	answers, err := introspect.Ask(t.Context(), conn, introspect.Question{Timeout: 20 * time.Second})
	require.NoError(t, err, "the connection is as before")
	require.Empty(t, answers.Answers)
}

func TestAListenerComesBackAfterItsSessionEnded(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := pgtest.Connect(t, dsn)
	join(t, dsn, introspect.Config{}, &orders{n: 1})
	listening(t, conn, 1)
	answers, err := introspect.Ask(t.Context(), conn, introspect.Question{Timeout: 20 * time.Second})
	require.NoError(t, err)
	first := answers.Answers[0].Session
	_, err = conn.Exec(t.Context(), "SELECT pg_terminate_backend($1, 10000)", first)
	require.NoError(t, err)
	listening(t, conn, 1)
	answers, err = introspect.Ask(t.Context(), conn, introspect.Question{Timeout: 20 * time.Second})
	require.NoError(t, err)
	require.NotEqual(t, first, answers.Answers[0].Session)
}

func TestAFloodOfQuestionsIsAnsweredAHundredTimesASecond(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn := pgtest.Connect(t, dsn)
	join(t, dsn, introspect.Config{}, &orders{n: 1})
	listening(t, conn, 1)
	const reply, questions = "pglatch_reply_0123456789abcdef01234567", 50
	_, err := conn.Exec(t.Context(), "LISTEN "+reply)
	require.NoError(t, err)
	begin := time.Now()
	_, err = conn.Exec(t.Context(), `SELECT pg_notify('pglatch_ask', '{"v":1,"reply":"'||$1||'","key":"'||$3||'","question":{"limit":'||i||'}}') FROM generate_series(1, $2::int) AS i`,
		reply, questions, publicKey(t))
	require.NoError(t, err)
	for range questions {
		_, err := conn.WaitForNotification(t.Context())
		require.NoError(t, err)
	}
	require.GreaterOrEqual(t, time.Since(begin), (questions-1)*10*time.Millisecond) // longer on a busy machine
}

func TestMain(m *testing.M) { pgtest.Main(m) }

var order = namespace.Must(7, "order")

// waits returns the wait of a caller for one order, while it holds others.
func waits(id uint64, since time.Duration, want int64, holds ...int64) introspect.Wait {
	w := introspect.Wait{ID: id, Key: order.ID(want).String(), Tag: order.ID(want).Tag(), Age: since}
	for _, h := range holds {
		w.Holds = append(w.Holds, order.ID(h).Tag())
	}
	return w
}

func process(id string, all ...introspect.Wait) introspect.Answer {
	return introspect.Answer{Process: introspect.Process{ID: id, Service: id, Host: "host", PID: 1}, Waits: all}
}

func TestACycleThroughProcessesIsFoundAndNamed(t *testing.T) {
	t.Parallel()
	a := introspect.Answers{Answers: []introspect.Answer{
		process("a", waits(1, 3*time.Second, 2, 1), waits(2, time.Second, 9)),
		process("b", waits(1, 2*time.Second, 3, 2, 8)),
		process("c", waits(5, 4*time.Second, 1, 3), waits(6, time.Second, 8, 9)), // 9 is in no cycle: who waits for it holds nothing
	}}
	cycles := a.Cycles()
	require.Len(t, cycles, 1)
	require.Len(t, cycles[0], 3)
	require.Equal(t, "b", cycles[0].Youngest().Process.ID)
	require.Equal(t, "a@host (1) waits for order/2, which b@host (1) holds, which waits for order/3, which c@host (1) holds, which waits for order/1, which a@host (1) holds",
		cycles[0].String())
	require.True(t, cycles[0].Same(a.Cycles()[0]))
	a.Answers[1].Waits[0].ID = 2
	require.False(t, cycles[0].Same(a.Cycles()[0]), "another wait")
}

func TestWhatEndsByItselfIsNoCycle(t *testing.T) {
	t.Parallel()
	for name, a := range map[string]introspect.Answers{
		"a chain": {Answers: []introspect.Answer{process("a", waits(1, 1, 2, 1)), process("b", waits(1, 1, 3, 2)), process("c")}},
		"readers": {Answers: []introspect.Answer{
			{Process: introspect.Process{ID: "a"}, Locks: []introspect.Lock{{Tag: order.ID(1).Tag(), Shared: true}}, Waits: []introspect.Wait{shared(waits(1, 1, 2, 1))}},
			{Process: introspect.Process{ID: "b"}, Locks: []introspect.Lock{{Tag: order.ID(2).Tag(), Shared: true}}, Waits: []introspect.Wait{shared(waits(1, 1, 1, 2))}},
		}},
		"a semaphore": {Answers: []introspect.Answer{process("a", semaphore(waits(1, 1, 2, 1))), process("b", waits(1, 1, 1, 2))}},
	} {
		require.Empty(t, a.Cycles(), name)
	}
	a := introspect.Answers{Answers: []introspect.Answer{
		{Process: introspect.Process{ID: "a"}, Locks: []introspect.Lock{{Tag: order.ID(1).Tag(), Shared: true}}, Waits: []introspect.Wait{waits(1, 1, 2, 1)}},
		{Process: introspect.Process{ID: "b"}, Locks: []introspect.Lock{{Tag: order.ID(2).Tag(), Shared: true}}, Waits: []introspect.Wait{waits(1, 1, 1, 2)}},
	}}
	require.Len(t, a.Cycles(), 1, "a control: readers that become writers")
}

func shared(w introspect.Wait) introspect.Wait    { w.Shared = true; return w }
func semaphore(w introspect.Wait) introspect.Wait { w.Semaphore = true; return w }

func TestAProcessTellsItsAgeInSeconds(t *testing.T) {
	t.Parallel()
	p := introspect.Process{ID: "x", Service: "billing", Host: "web-1", PID: 7, Age: 1500*time.Millisecond + 1, Clock: time.Unix(1, 0).UTC()}
	text, err := json.Marshal(introspect.Answer{Process: p})
	require.NoError(t, err)
	assert.Contains(t, string(text), `"age":1.500000001`)
	var back introspect.Answer
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, p, back.Process)
	require.Error(t, json.Unmarshal([]byte(`{"age": 1e300}`), &p), "it is no time.Duration")
}
