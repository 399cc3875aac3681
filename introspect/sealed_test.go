package introspect_test

import (
	"context"
	"crypto/ecdh"
	"crypto/hpke"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

func newKey(t *testing.T) hpke.PrivateKey {
	t.Helper()
	key, err := hpke.DHKEM(ecdh.X25519()).GenerateKey()
	require.NoError(t, err)
	return key
}

// publicKey is one that a question can come with.
func publicKey(t *testing.T) string {
	t.Helper()
	return base64.StdEncoding.EncodeToString(newKey(t).PublicKey().Bytes())
}

// as connects as a role that is made for it, and is a member of others.
func as(t *testing.T, admin *pgx.Conn, role string, of ...string) *pgx.Conn {
	t.Helper()
	_, err := admin.Exec(t.Context(), "CREATE ROLE "+role+" LOGIN PASSWORD 'x'")
	require.NoError(t, err)
	for _, o := range of {
		_, err = admin.Exec(t.Context(), "GRANT "+pgx.Identifier{o}.Sanitize()+" TO "+role)
		require.NoError(t, err)
	}
	cc := admin.Config().Copy()
	cc.User, cc.Password, cc.OnNotification = role, "x", nil
	conn, err := pgx.ConnectConfig(t.Context(), cc)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

// labels are those of the locks that a role is told of, by key.
func labels(t *testing.T, conn *pgx.Conn, q introspect.Question) map[string]string {
	t.Helper()
	q.Timeout = 20 * time.Second
	answers, err := introspect.Ask(t.Context(), conn, q)
	require.NoError(t, err)
	require.Len(t, answers.Answers, 1)
	all := make(map[string]string)
	for _, l := range answers.Answers[0].Locks {
		all[l.Key] = l.Label
	}
	return all
}

func TestEntitiesAndLabelsAreToldToRolesThatMayReadThem(t *testing.T) {
	t.Parallel()
	admin := pgtest.Connect(t, pgtest.StartServer(t, pgserver.Options{}).DSN("postgres"))
	_, err := admin.Exec(t.Context(), "CREATE ROLE support")
	require.NoError(t, err)
	owner := as(t, admin, "owner")
	conns := map[string]*pgx.Conn{
		"the process' own": owner, "a member of it": as(t, admin, "deputy", "owner"), "a superuser": admin,
		"of pg_read_all_stats": as(t, admin, "viewer", "pg_read_all_stats"), "of support": as(t, admin, "supporter", "support"),
		"any": as(t, admin, "plain"), "of pg_signal_backend": as(t, admin, "signaler", "pg_signal_backend"),
	}
	always := []string{"the process' own", "a member of it", "a superuser", "of pg_read_all_stats"}
	for name, c := range map[string]struct {
		config introspect.Config
		told   []string
	}{
		"by default":          {introspect.Config{}, always},
		"with readers":        {introspect.Config{Readers: []string{"support", "no such role"}}, append(always, "of support")},
		"hidden":              {introspect.Config{HideEntities: true}, nil},
		"hidden from readers": {introspect.Config{HideEntities: true, Readers: []string{"support"}}, nil},
	} {
		member := join(t, "", c.config, &orders{n: 1, label: "nightly"}, func(m *introspect.Member) { m.Conn = owner.Config() })
		listening(t, admin, 1)
		for role, conn := range conns {
			wanted := map[string]string{"order/…": ""}
			if slices.Contains(c.told, role) {
				wanted = map[string]string{"order/0": "nightly"}
			}
			assert.Equal(t, wanted, labels(t, conn, introspect.Question{}), "%s: %s", name, role)
			assert.Equal(t, slices.Contains(c.told, role), len(labels(t, conn, introspect.Question{Prefix: "order/0"})) == 1,
				"%s: %s: an entity is not found out by its beginning", name, role)
			assert.Len(t, labels(t, conn, introspect.Question{Tags: []namespace.Tag{namespace.Must(7, "order").ID(0).Tag()}}), 1, "who knows it may ask")
		}
		member.Leave()
		listening(t, admin, 0)
	}
}

// LISTEN needs no right, so an eavesdropper receives messages that are sent to others.
func TestAnAnswerIsReadByWhoAskedAlone(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn, eavesdropper := pgtest.Connect(t, dsn), pgtest.Connect(t, dsn)
	source := &orders{n: 100, label: "nightly", block: make(chan struct{})}
	join(t, dsn, introspect.Config{}, source)
	listening(t, conn, 1)
	_, err := eavesdropper.Exec(t.Context(), "LISTEN pglatch_ask")
	require.NoError(t, err)
	told := make(chan introspect.Answers, 1)
	go func() {
		defer close(told)
		if answers, err := introspect.Ask(t.Context(), conn, introspect.Question{Timeout: time.Minute}); assert.NoError(t, err) {
			told <- answers
		}
	}()
	question, err := eavesdropper.WaitForNotification(t.Context())
	require.NoError(t, err)
	var sent struct{ Reply string }
	require.NoError(t, json.Unmarshal([]byte(question.Payload), &sent))
	_, err = eavesdropper.Exec(t.Context(), "LISTEN "+sent.Reply)
	require.NoError(t, err)
	close(source.block)
	require.Len(t, (<-told).Answers[0].Locks, 100, "the control: who asked reads it")

	var text strings.Builder
	for more := true; more; {
		part, err := eavesdropper.WaitForNotification(t.Context())
		require.NoError(t, err)
		head, chunk, _ := strings.Cut(part.Payload, " ")
		first, last, _ := strings.Cut(head, "/")
		more = first != last
		text.WriteString(chunk)
	}
	sealed, err := base64.StdEncoding.DecodeString(text.String())
	require.NoError(t, err)
	assert.Greater(t, len(sealed), 1000, "the control: it got the whole answer")
	assert.NotContains(t, string(sealed), "order")
	assert.NotContains(t, string(sealed), "nightly")
	_, err = hpke.Open(newKey(t), hpke.HKDFSHA256(), hpke.AES128GCM(), []byte("pglatch answer 1"), sealed)
	require.Error(t, err)
}

// If the caller has set a handler, pgx queues no notifications.
func TestAHandlerOfNotificationsOfTheCallersTakesNoAnswers(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	cc, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	cc.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	join(t, dsn, introspect.Config{}, &orders{n: 1}, func(m *introspect.Member) { m.Conn = cc })
	conn := pgtest.Connect(t, dsn)
	listening(t, conn, 1)
	assert.Len(t, labels(t, conn, introspect.Question{}), 1, "a process whose configuration has one answers")

	handled, err := pgx.ConnectConfig(t.Context(), cc)
	require.NoError(t, err)
	t.Cleanup(func() { _ = handled.Close(context.WithoutCancel(t.Context())) })
	_, err = introspect.Ask(t.Context(), handled, introspect.Question{})
	require.ErrorIs(t, err, introspect.ErrQuestion)
	require.ErrorContains(t, err, "OnNotification")
}
