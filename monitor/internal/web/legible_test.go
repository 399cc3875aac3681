package web_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor/internal/incident"
	"github.com/pglatch/pglatch/monitor/internal/web"
	"github.com/pglatch/pglatch/namespace"
)

func TestWhatUsersNamedNeitherFillsThePageNorTurnsItsWords(t *testing.T) {
	t.Parallel()
	tag := namespace.Pair(1, 7).Tag()
	long, turning, hebrew := strings.Repeat("x", 3000), "order/7\u202etxt", "דוח"
	a := introspect.Answer{
		Process: introspect.Process{ID: "x", Service: turning, Host: hebrew, PID: 7}, Session: 900, AllLocks: 1, AllWaits: 1,
		Locks:     []introspect.Lock{{Key: turning, Tag: tag, Session: 5, Age: time.Hour, Label: long}},
		Waits:     []introspect.Wait{{Key: turning, Tag: tag, Age: time.Minute, Label: long}},
		Elections: []introspect.Election{{Name: long, Key: "1:100", Tags: []namespace.Tag{namespace.Pair(1, 100).Tag()}, Node: turning, State: "follower", Error: long, Leader: long}},
	}
	picture := incident.Build(incident.Input{
		At: start, Asked: start, Answers: []introspect.Answer{a}, ID: func(namespace.Tag) string { return "id" },
		Rows: []incident.Row{{Session: incident.Session{PID: 5, Name: "app"}, Tag: tag, Text: turning, Shown: true, Granted: true}},
	})
	memory := incident.NewMemory(incident.DefaultLimits())
	s := &web.State{Picture: picture, Verdicts: memory.Look(picture), Ended: time.Now()}
	s.Past, s.Sorted = *memory.Past(), incident.ByTrouble(picture, s.Verdicts)
	require.NotEmpty(t, s.Verdicts)
	p := web.New(web.Config{Look: func(context.Context) (*web.State, error) { return s, nil }})
	for _, view := range []string{"/", "/key?id=id", "/graph", "/elections", "/happened", "/verdicts"} {
		body := get(t, p, view).Body.String()
		assert.NotContains(t, body, strings.Repeat("x", 700), view)
		assert.NotContains(t, body, "\u202e", view)
		if i := strings.Index(body, hebrew); i > 0 {
			assert.Equal(t, "\u2068", body[i-len("\u2068"):i], view)
		}
	}
	body := get(t, p, "/key?id=id").Body.String()
	assert.Contains(t, body, "order/7?txt", "control: it is shown")
	assert.Contains(t, body, hebrew, "control: it is shown")
	assert.Contains(t, body, "pglatch ask "+tag.String(), "a command takes the key as it is")
	assert.Contains(t, body, `<h1 class="key" data-key="`+tag.String()+`">order/7?txt`, "and so does an action: what is shown may be the name of another key")
	assert.Contains(t, body, `<small class="label"><bdi>xxx`)
}
