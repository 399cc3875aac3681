package pgtest

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// shared is the one server of this test binary. Its scope is the process: TestMain and the tests of a
// package have nothing else in common.
var shared sharedServer

// A sharedServer is opened by the first test that needs it. A package or a fuzz worker without a database
// starts none.
type sharedServer struct {
	mu     sync.Mutex
	opened bool
	admin  string // connection string for the databases' creation
	server *pgserver.Server
	err    error
}

func (s *sharedServer) open(ctx context.Context) (admin string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opened {
		return s.admin, s.err
	}
	s.opened = true
	if url := cmp.Or(os.Getenv("PGLATCH_TEST_DATABASE_URL"), os.Getenv("TEST_DATABASE_URL")); url != "" {
		s.admin, s.err = url, checkVersion(ctx, url, os.Getenv("PGLATCH_PG_VERSION"))
		return s.admin, s.err
	}
	s.server, s.err = pgserver.Start(ctx, pgserver.Options{})
	if s.err == nil {
		s.admin = s.server.DSN("")
	}
	return s.admin, s.err
}

func (s *sharedServer) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return nil
	}
	return s.server.Close()
}

// checkVersion refuses a server from the environment that is too old or not of the wanted version.
func checkVersion(ctx context.Context, url, want string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("pgtest: the server of PGLATCH_TEST_DATABASE_URL or TEST_DATABASE_URL: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // only read from
	var number int
	if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int").Scan(&number); err != nil {
		return fmt.Errorf("pgtest: %w", err)
	}
	major := strconv.Itoa(number / 10000)
	if number < 140000 || (want != "" && want != major) {
		return fmt.Errorf("pgtest: the server of PGLATCH_TEST_DATABASE_URL or TEST_DATABASE_URL is PostgreSQL %s, wanted is %s: unset the URL or PGLATCH_PG_VERSION",
			major, cmp.Or(want, "14 or later"))
	}
	return nil
}
