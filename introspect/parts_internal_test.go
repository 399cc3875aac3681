package introspect

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
