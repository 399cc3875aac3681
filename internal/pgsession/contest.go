package pgsession

import (
	"fmt"

	"github.com/pglatch/pglatch/namespace"
)

// Contested reports whether another session holds the lock or waits for it. It ends a
// watch.
func (s *Session) Contested(tag namespace.Tag) (bool, error) {
	row, err := s.Query(fmt.Sprintf(`
	SELECT EXISTS (SELECT FROM pg_catalog.pg_locks WHERE %s AND pid IS DISTINCT FROM pg_catalog.pg_backend_pid()),
		pg_catalog.pg_backend_pid()`, whereKey(tag)))
	return err == nil && row[0] == "t", err
}
