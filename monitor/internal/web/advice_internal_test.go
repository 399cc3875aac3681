package web

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/incident"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

func TestEachCommandOfAnAdviceCanBeCopied(t *testing.T) {
	t.Parallel()
	odd := incident.Shell("chat/it's; pglatch terminate 1.")
	for text, want := range map[string]string{
		"End session 12: pglatch terminate 12. Then take":                           "pglatch terminate 12",
		"pglatch terminate 7 shows what ends":                                       "pglatch terminate 7",
		"SELECT gid, prepared, owner FROM pg_prepared_xacts; then COMMIT PREPARED":  "SELECT gid, prepared, owner FROM pg_prepared_xacts;",
		"busy: pglatch turns ls --running shows":                                    "pglatch turns ls --running",
		"See: pglatch turns show chat/a.b. After: pglatch turns skip chat/a.b.":     "pglatch turns show chat/a.b|pglatch turns skip chat/a.b",
		"interrupt it: pglatch turns interrupt " + incident.Shell("chat/a.") + ".":  "pglatch turns interrupt 'chat/a.'",
		"retry: pglatch turns retry " + odd + " --mailbox " + odd + ". To continue": "pglatch turns retry " + odd + " --mailbox " + odd,
		"ask it (pglatch ask), or stop it":                                          "",
	} {
		var found, all []string
		for _, s := range advice(text) {
			if all = append(all, s.Text); s.Command {
				found = append(found, s.Text)
			}
		}
		assert.Equal(t, want, strings.Join(found, "|"), text)
		assert.Equal(t, text, strings.Join(all, ""), "control: nothing is lost")
	}
}

func TestTheQueryOfASemaphoreFindsItsSlotsAndItsTurnstile(t *testing.T) {
	t.Parallel()
	pool, err := namespace.Must(2, "order").Text("pool")
	require.NoError(t, err)
	tag := func(label string) namespace.Tag {
		k, err := pool.Companion(label)
		require.NoError(t, err)
		return k.Tag()
	}
	p := incident.Build(incident.Input{
		Rows: []incident.Row{{Session: incident.Session{PID: 7}, Tag: tag("slot0"), Granted: true}},
		Answers: []introspect.Answer{{Waits: []introspect.Wait{
			{Key: "order/pool", Tag: pool.Tag(), Semaphore: true, Slots: []namespace.Tag{tag("slot0")}, Session: 8},
		}}},
	})
	require.Len(t, p.Keys, 1)
	sql := queries(p.Keys[0])[0]
	assert.Contains(t, sql, where(tag("slot0")))
	assert.Contains(t, sql, where(tag("turnstile")))
	assert.NotContains(t, sql, where(pool.Tag()), "a lock on its own key is independent of its slots")
}
