package pgsession

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/sqlstate"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// passwordServer is a server that asks the role app for a password.
func passwordServer(t *testing.T) *pgserver.Server {
	t.Helper()
	server := pgtest.StartServer(t, pgserver.Options{})
	admin, err := pgx.Connect(t.Context(), server.DSN(""))
	require.NoError(t, err)
	defer admin.Close(context.Background())
	var hba string
	require.NoError(t, admin.QueryRow(t.Context(), "SHOW hba_file").Scan(&hba))
	require.NoError(t, os.WriteFile(hba, []byte("host all app,shut 127.0.0.1/32 scram-sha-256\nhost all postgres 127.0.0.1/32 trust\n"), 0o600))
	_, err = admin.Exec(t.Context(), `CREATE ROLE app LOGIN PASSWORD 'right'; CREATE ROLE shut LOGIN PASSWORD 'right';
		CREATE ROLE stranger LOGIN; SELECT pg_reload_conf()`)
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), `CREATE DATABASE inner_sanctum`)
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), `REVOKE CONNECT ON DATABASE inner_sanctum FROM PUBLIC; ALTER ROLE shut NOLOGIN`)
	require.NoError(t, err)
	cc := admin.Config().Copy()
	cc.User, cc.Password = "app", "wrong"
	require.Eventually(t, func() bool { // until the server has read its file
		conn, err := pgx.ConnectConfig(t.Context(), cc)
		if err == nil {
			_ = conn.Close(t.Context())
		}
		return err != nil
	}, time.Minute, 20*time.Millisecond)
	return server
}

func TestWhatTheServerRefusesIsNoOutageAndSaysWhatHelps(t *testing.T) {
	t.Parallel()
	server := passwordServer(t)
	at := net.JoinHostPort(server.Host(), strconv.Itoa(server.Port()))
	for name, row := range map[string]struct {
		dsn, code, begins, says string
	}{
		"a wrong password":       {"postgres://app:wrong@" + at + "/postgres", "28P01", `password authentication failed for user "app"`, "the password"},
		"a role without login":   {"postgres://shut:right@" + at + "/postgres", "28000", `role "shut" is not permitted to log in`, "its right to log in"},
		"no line in pg_hba.conf": {"postgres://stranger@" + at + "/postgres", "28000", `no pg_hba.conf entry`, "pg_hba.conf"},
		"no such database":       {"postgres://app:right@" + at + "/nowhere", "3D000", `database "nowhere" does not exist`, "create the database"},
		"no right to connect":    {"postgres://app:right@" + at + "/inner_sanctum", "42501", `permission denied for database "inner_sanctum"`, "GRANT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := openPool(t, row.dsn, nil)
			var refused *session.RefusedError
			require.ErrorAs(t, err, &refused)
			require.ErrorIs(t, err, session.ErrRefused)
			require.NotErrorIs(t, err, session.ErrUnavailable)
			assert.Equal(t, row.code, sqlstate.Of(err))
			assert.Regexp(t, "^"+row.begins, refused.Error())
			assert.Contains(t, refused.Error(), row.says)
			assert.Contains(t, refused.Error(), at)
			assert.NotContains(t, refused.Error(), "\n")
		})
	}
	// The control: a server that is not there, and one that lets the client in.
	_, err := openPool(t, "postgres://app:wrong@127.0.0.1:1/postgres?connect_timeout=1", nil)
	require.ErrorIs(t, err, session.ErrUnavailable)
	require.NotErrorIs(t, err, session.ErrRefused)
	newPool(t, "postgres://app:right@"+at+"/postgres", nil)
}

func TestOneHostThatRefusesIsNoRefusalWhileAnotherIsSilent(t *testing.T) {
	t.Parallel()
	server := passwordServer(t)
	at := net.JoinHostPort(server.Host(), strconv.Itoa(server.Port()))
	_, err := openPool(t, "postgres://app:wrong@127.0.0.1:1,"+at+"/postgres?connect_timeout=1", nil)
	require.ErrorIs(t, err, session.ErrUnavailable, "the other host can be the primary that restarts")
	require.ErrorContains(t, err, "28P01")
	_, err = openPool(t, "postgres://app:wrong@"+at+","+at+"/postgres", nil)
	require.ErrorIs(t, err, session.ErrRefused, "it is one host")
}

func TestErrorsThatPassAreNoRefusal(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"57P03", "53300", "53200", "08006", "57P01", "40001", "XX000", "25006"} {
		assert.Nil(t, Refusal(&pgconn.PgError{Code: code}), code)
	}
	assert.Nil(t, Refusal(errors.New("a cut network")))
	assert.Nil(t, Refusal(nil))
	assert.NotNil(t, Refusal(&pgconn.PgError{Code: "42501", Message: "permission denied for schema s"}))
}
