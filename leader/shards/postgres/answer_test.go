package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/namespace"
)

func TestASessionAnswersWhatItOwns(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	b := newBackend(t, dsn, func(c *postgres.Config) { c.Answer.Service = "polling" })
	s, other := open(t, b, "web-3"), open(t, b, "web-3")
	claim(t, s, "1", "acme")
	claim(t, other, "2")
	conn := pgtest.Connect(t, dsn)
	ask := func(q introspect.Question) (a introspect.Answer) {
		answers, err := introspect.Ask(t.Context(), conn, q)
		require.NoError(t, err)
		if len(answers.Answers) == 1 {
			a = answers.Answers[0]
		}
		return a
	}
	newJudge(t, dsn).Until(func() bool { return ask(introspect.Question{}).AllLocks == 5 }) // who has begun to listen may not answer yet

	a := ask(introspect.Question{Timeout: 20 * time.Second, Prefix: "tenant/"})
	require.Equal(t, "polling", a.Process.Service)
	require.Equal(t, 3, a.AllLocks)
	require.Len(t, a.Groups, 2, "one for each session")
	sessions := map[uint32]int{}
	for _, g := range a.Groups {
		require.Equal(t, "tenant=7", g.Name)
		require.Equal(t, "web-3", g.Node)
		sessions[g.Session] = g.Owned
	}
	names := map[string]namespace.Tag{}
	for _, l := range a.Locks {
		names[l.Key] = l.Tag
		require.Equal(t, "tenant=7", l.Group)
		require.Contains(t, sessions, l.Session)
	}
	key, err := tenants.Text("acme")
	require.NoError(t, err)
	require.Equal(t, map[string]namespace.Tag{"tenant/1": tenants.ID(1).Tag(), "tenant/2": tenants.ID(2).Tag(), "tenant/acme": key.Tag()}, names)

	replies, err := introspect.Send(t.Context(), conn, introspect.Request{Timeout: 20 * time.Second, Kind: introspect.AskRelease, Tag: key.Tag()})
	require.NoError(t, err)
	require.Len(t, replies, 1)
	require.False(t, replies[0].Done)
	require.Contains(t, replies[0].Refused, "pglatch shards")

	release(t, s, "acme")
	require.Equal(t, 2, ask(introspect.Question{Timeout: 20 * time.Second, Prefix: "tenant/"}).AllLocks)
	require.NoError(t, s.Close())
	require.Equal(t, 1, ask(introspect.Question{Timeout: 20 * time.Second, Prefix: "tenant/"}).AllLocks)
}
