package postgres_test

import (
	"testing"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

func startServer(t *testing.T, settings map[string]string) *pgserver.Server {
	t.Helper()
	return pgtest.StartServer(t, pgserver.Options{Settings: settings})
}
