package pgdsn_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/pgdsn"
)

const secret = "S3cr3t"

// broken are strings that are refused, each with a word of what is said, and the text
// that stands at the place that is named.
var broken = []struct{ dsn, says, at string }{
	{"postgres://u:" + secret + "%zz@127.0.0.1/db", "%25", "%zz"},
	{"postgres://u:" + secret + "%", "%25", "%"},
	{"postgres://u:" + secret + "/x@127.0.0.1/db", "%2F", "/x@"},
	{"postgres://u:p@ss/" + secret + "@127.0.0.1/db", "%2F", "/" + secret},
	{"postgres://u:1234/" + secret + "@127.0.0.1/db", "%2F", "/" + secret},
	{"postgres://u:a@" + secret + "@127.0.0.1:nan/db", "%40", "@" + secret},
	{"postgres://u:a@" + secret + "@h/db", "%40", "@" + secret},
	{"postgres://u:" + secret + "@127.0.0.1:nan/db", "a port", "nan"},
	{"postgres://u:" + secret + " x@127.0.0.1:1/db", "%20", " x@"},
	{"postgres://u:" + secret + "@[::1/db", "bracket", "[::1"},
	{"postgres://u:" + secret + "@[::1]x/db", "bracket", "[::1]x"},
	{"postgres://u:" + secret + "@127.0.0.1:99999999/db", "1 to 65535", "99999999"},
	{"postgres://u:" + secret + "@a:1,b:x/db", "1 to 65535", "x/db"},
	{"postgres://u:" + secret + "@h/db?port=x", "1 to 65535", "port=x"},
	{"postgres://u:" + secret + "@127.0.0.1:1/db?sslmode=bogus", "sslmode", "sslmode=bogus"},
	{"postgres://u:" + secret + "@127.0.0.1:1/db?connect_timeout=x", "connect_timeout", "connect_timeout=x"},
	{"postgres://127.0.0.1:1/db?user=u&password=" + secret + "&sslmode=bogus", "sslmode", "sslmode=bogus"},
	{"postgres://127.0.0.1:1/db?user=u&password=" + secret + "%zz", "%25", "%zz"},
	{"postgres://h/db?user=u;password=" + secret, "divided by &", "user=u;"},
	{"postgres://h/db?a=b&" + secret, "key=value", secret},
	{"postgres://u:p@127.0.0.1:1/db?sslpassword=" + secret + "&sslmode=bogus", "sslmode", "sslmode=bogus"},
	{"postgres://h/db?sslmode=require&sslrootcert=/" + secret, "does not exist", "sslrootcert=/"},
	{"postgres://h/db?sslmode=require&sslcert=/" + secret, "together", "sslcert=/"},
	{"postgres://h/db?target_session_attrs=" + secret, "target_session_attrs", "target_session_attrs="},
	{"postgres://h/db?pool_max_conns=" + secret, "pool_max_conns", "pool_max_conns="},
	{"postgres://h/db?pool_max_conn_lifetime=" + secret, "pool_max_conn_lifetime is", "pool_max_conn_lifetime="},
	{"postgres://h/db?default_query_exec_mode=" + secret, "default_query_exec_mode", "default_query_exec_mode="},
	{"postgres://h/db?service=" + secret + "&servicefile=/" + secret, "service file", "service="},
	{"host=127.0.0.1 password='" + secret + " port=5", "nothing closes", "'" + secret},
	{"host=127.0.0.1 password=" + secret + "\\ port=x " + secret, "no keyword=value", secret},
	{"host=127.0.0.1 port=1 user=u password=" + secret + " " + secret, "single quotes", secret},
	{"host=127.0.0.1 pass word=" + secret, "no keyword=value", "pass word"},
	{"user=u password=" + secret + " host=127.0.0.1 sslmode=bogus", "sslmode", "sslmode=bogus"},
	{"host=h =" + secret, "no keyword=value", "=" + secret},
	{"postgresql ://u:" + secret + "@h/db", "neither a URL", "postgresql"},
	{"postgres//u:" + secret + "@h/db", "neither a URL", "postgres//"},
	{"u:" + secret + "@h/db", "neither a URL", "u:"},
	{"host=h password=" + secret + "\x00", "NUL", "\x00"},
}

func TestAStringThatCannotBeReadIsNamedByProblemAndPlaceAndNeverQuoted(t *testing.T) {
	t.Parallel()
	for _, c := range broken {
		_, err := pgdsn.Parse(c.dsn)
		e, ok := errors.AsType[*pgdsn.Error](err)
		require.True(t, ok, "%q: %v", c.dsn, err)
		assert.Contains(t, e.Problem, c.says, c.dsn)
		assert.NotContains(t, err.Error(), secret, c.dsn)
		require.Positive(t, e.At, c.dsn)
		assert.True(t, strings.HasPrefix(c.dsn[e.At-1:], c.at), "%q: it names %q", c.dsn, c.dsn[e.At-1:])
	}
}

func TestStringsThatPgxpoolAndLibpqTakeAreTaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	service := filepath.Join(dir, "services")
	require.NoError(t, os.WriteFile(service, []byte("[shop]\nhost=service.test\ndbname=shop\nuser=u\n"), 0o600))
	pass := filepath.Join(dir, "pass")
	require.NoError(t, os.WriteFile(pass, []byte("*:*:*:u:"+secret+"\n"), 0o600))
	long := strings.Repeat("a", 300)
	for dsn, want := range map[string]func(t *testing.T, cc *pgconn.Config){
		"postgres://u@h/db?pool_max_conns=7&pool_min_conns=2&pool_min_idle_conns=1&pool_max_conn_lifetime=1h&pool_max_conn_idle_time=1m" +
			"&pool_health_check_period=10s&pool_max_conn_lifetime_jitter=1s": func(t *testing.T, cc *pgconn.Config) {
			t.Helper()
			assert.Empty(t, cc.RuntimeParams, "the server refuses parameters that it does not know")
		},
		"host=h user=u dbname=db pool_max_conns=7 application_name=x": func(t *testing.T, cc *pgconn.Config) {
			t.Helper()
			assert.Equal(t, map[string]string{"application_name": "x"}, cc.RuntimeParams)
		},
		"service=shop servicefile=" + service: func(t *testing.T, cc *pgconn.Config) {
			t.Helper()
			assert.Equal(t, "service.test", cc.Host)
		},
		"postgres://u@h/db?passfile=" + pass: func(t *testing.T, cc *pgconn.Config) {
			t.Helper()
			assert.Equal(t, secret, cc.Password)
		},
		"postgres://u@h1:1,h2:2/db?target_session_attrs=read-write&sslmode=disable": func(t *testing.T, cc *pgconn.Config) {
			t.Helper()
			require.Len(t, cc.Fallbacks, 1)
			assert.Equal(t, "h2", cc.Fallbacks[0].Host)
		},
		"host=/var/run/postgresql user=u": func(t *testing.T, cc *pgconn.Config) {
			t.Helper()
			assert.Equal(t, "/var/run/postgresql", cc.Host)
		},
		"postgres://u@%2Fvar%2Frun%2Fpostgresql/db": func(t *testing.T, cc *pgconn.Config) {
			t.Helper()
			assert.Equal(t, "/var/run/postgresql", cc.Host)
		},
		"postgres://u:12?[#;x@h/db": func(t *testing.T, cc *pgconn.Config) {
			t.Helper()
			assert.Equal(t, "12?[#;x", cc.Password, "as libpq reads it")
			assert.Equal(t, "h", cc.Host)
		},
		"postgres://u@[::1]:5433/db": func(t *testing.T, cc *pgconn.Config) {
			t.Helper()
			assert.Equal(t, "::1", cc.Host)
			assert.Equal(t, uint16(5433), cc.Port)
		},
		"postgres://u:a%40b@h/db?sslmode=require": func(t *testing.T, cc *pgconn.Config) {
			t.Helper()
			assert.Equal(t, "a@b", cc.Password)
			assert.NotNil(t, cc.TLSConfig)
		},
		"postgres://h/db?application_name=" + long: func(t *testing.T, cc *pgconn.Config) {
			t.Helper()
			assert.Equal(t, long, cc.RuntimeParams["application_name"], "PostgreSQL keeps 63 bytes of it")
		},
		"postgres://h/db?options=-c%20search_path%3Dx&application_name=me@host": func(t *testing.T, cc *pgconn.Config) {
			t.Helper()
			assert.Equal(t, "h", cc.Host)
		},
	} {
		cc, err := pgdsn.Parse(dsn)
		require.NoError(t, err, dsn)
		want(t, &cc.Config)
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range broken {
		f.Add(c.dsn)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		_, err := pgdsn.Parse(dsn)
		if err == nil {
			return
		}
		e, ok := errors.AsType[*pgdsn.Error](err)
		require.True(t, ok, "%v", err)
		assert.LessOrEqual(t, e.At, len(dsn))
		assert.NoError(t, errors.Unwrap(err), "an error behind it would quote the string")
	})
}
