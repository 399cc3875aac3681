package program_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/lease"
	leasepostgres "github.com/pglatch/pglatch/lease/postgres"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

// entries are all that takes a connection string. Each does one thing with the
// database that it names.
var entries = map[string]func(t *testing.T, dsn string) error{
	"advisory": func(t *testing.T, dsn string) error {
		t.Helper()
		return lockOnce(t, advisory.Config{DSN: dsn})
	},
	"advisory, multiplexed": func(t *testing.T, dsn string) error {
		t.Helper()
		return lockOnce(t, advisory.Config{DSN: dsn, LocksPerConn: 100})
	},
	"monitor": func(t *testing.T, dsn string) error {
		t.Helper()
		m, err := monitor.Open(monitor.Config{DSN: dsn})
		if err != nil {
			return err
		}
		defer m.Close()
		_, err = m.Snapshot(t.Context())
		return err
	},
	"leader": func(t *testing.T, dsn string) error {
		t.Helper()
		b, err := postgres.New(postgres.Config{DSN: dsn, Key: namespace.Pair(9, lastKey.Add(1)), CreateTable: true})
		if err != nil {
			return err
		}
		defer func() { require.NoError(t, b.Close()) }()
		won, err := b.TryAcquire(t.Context(), "node", time.Minute)
		if err == nil && !won {
			return errors.New("not won")
		}
		return err
	},
	"lease": func(t *testing.T, dsn string) error {
		t.Helper()
		s, err := leasepostgres.New(leasepostgres.Config{DSN: dsn})
		if err != nil {
			return err
		}
		defer s.Close()
		if err = s.Migrate(t.Context()); err != nil {
			return err
		}
		if _, err = s.Get(t.Context(), "nothing"); errors.Is(err, lease.ErrNotFound) {
			return nil
		}
		return err
	},
	"command": func(t *testing.T, dsn string) error {
		t.Helper()
		if _, stderr, code := clitest.Run(t, clitest.At(dsn), "ls"); code != 0 {
			return fmt.Errorf("exit %d: %s", code, stderr)
		}
		return nil
	},
	"lock server": func(t *testing.T, dsn string) error {
		t.Helper()
		p := clitest.Start(t, clitest.At(dsn), "serve", "locks", "--listen", "127.0.0.1:0", "--store", "postgres")
		serving := func() bool { return strings.Contains(p.Stderr.String(), "msg=serving") }
		await.Until(t, await.Soon, func() bool {
			select {
			case <-p.Done:
				return true
			default:
				return serving()
			}
		}, p.Stderr.String)
		if !serving() {
			return fmt.Errorf("exit %d: %s", p.Wait(), p.Stderr.String())
		}
		p.Signal(syscall.SIGTERM)
		if code := p.Wait(); code != 0 {
			return fmt.Errorf("exit %d: %s", code, p.Stderr.String())
		}
		return nil
	},
}

func lockOnce(t *testing.T, config advisory.Config) error {
	t.Helper()
	locker, err := advisory.Open(t.Context(), config)
	if err != nil {
		return err
	}
	defer locker.Close()
	return locker.Do(t.Context(), namespace.Pair(9, 1), func(context.Context) error { return nil })
}

// lastKey is that of the last election: who has just left one is not in the way of the next.
var lastKey atomic.Int32

func TestEveryEntryTakesTheConnectionStringsOfLibpqAndPgxpool(t *testing.T) {
	t.Parallel()
	server := pgtest.StartServer(t, pgserver.Options{})
	cc, err := pgx.ParseConfig(server.DSN(""))
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	service, pass := filepath.Join(dir, "services"), filepath.Join(dir, "pass")
	words := fmt.Sprintf("host=%s port=%d user=%s dbname=%s", cc.Host, cc.Port, cc.User, cc.Database)
	require.NoError(t, os.WriteFile(service, []byte("[shop]\n"+strings.ReplaceAll(words, " ", "\n")+"\n"), 0o600))
	require.NoError(t, os.WriteFile(pass, []byte("*:*:*:*:unused\n"), 0o600))
	base := fmt.Sprintf("postgres://%s@%s:%d/%s?sslmode=disable", url.User(cc.User), cc.Host, cc.Port, cc.Database)
	forms := map[string]string{
		"URL":               base,
		"keywords":          words + " sslmode=disable",
		"pool settings":     base + "&pool_max_conns=7&pool_min_conns=1&pool_max_conn_lifetime=1h&pool_health_check_period=10s",
		"pool in keywords":  words + " pool_max_conns=7 pool_max_conn_idle_time=1m",
		"service file":      "service=shop servicefile=" + service,
		"password file":     base + "&passfile=" + url.QueryEscape(pass),
		"TLS if it is":      strings.Replace(base, "disable", "prefer", 1),
		"several hosts":     fmt.Sprintf("postgres://%s@127.0.0.1:1,%s:%d/%s?target_session_attrs=read-write", url.User(cc.User), cc.Host, cc.Port, cc.Database),
		"socket":            fmt.Sprintf("host=%s port=%d user=%s dbname=%s", server.SocketDir(), server.Port(), cc.User, cc.Database),
		"socket in a URL":   fmt.Sprintf("postgres://%s@/%s?host=%s&port=%d", url.User(cc.User), cc.Database, url.QueryEscape(server.SocketDir()), server.Port()),
		"a long name":       base + "&application_name=" + strings.Repeat("n", 300),
		"settings of a pgx": base + "&default_query_exec_mode=simple_protocol&statement_cache_capacity=0",
	}
	for name, enter := range entries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for form, dsn := range forms {
				assert.NoError(t, enter(t, dsn), form)
			}
		})
	}
}

func TestNoEntryQuotesAConnectionStringThatItCannotRead(t *testing.T) {
	t.Parallel()
	for name, enter := range entries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for dsn, place := range map[string]string{
				"postgres://u:a@S3cr3t@127.0.0.1/d":           "at character 15",
				"postgres://u:12/S3cr3t@127.0.0.1/d":          "at character 16",
				"postgres://u:S3cr3t%zz@127.0.0.1/d":          "at character 20",
				"host=127.0.0.1 user=u password=a S3cr3t":     "at character 34",
				"host=127.0.0.1 user=u password='S3cr3t":      "at character 32",
				"postgres://u:S3cr3t@127.0.0.1/d?sslmode=yes": "at character 33",
			} {
				err := enter(t, dsn)
				require.ErrorContains(t, err, place)
				require.ErrorContains(t, err, "withheld")
				assert.NotContains(t, err.Error(), "S3cr3t")
			}
		})
	}
}
