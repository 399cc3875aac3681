package pgelection

import (
	"fmt"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/namespace"
)

// Contested reports whether another session holds the lock or waits for it. It ends the session's watch.
func Contested(s *pgsession.Session, tag namespace.Tag) (bool, error) {
	row, err := s.Query(fmt.Sprintf(`
	SELECT EXISTS (SELECT FROM pg_catalog.pg_locks WHERE %s AND pid IS DISTINCT FROM pg_catalog.pg_backend_pid()),
		pg_catalog.pg_backend_pid()`, pgsession.WhereKey(tag)))
	return err == nil && row[0] == "t", err
}

// Alone reports whether no other session has the lock, which is a single key. It takes the lock for one
// statement. It ends the session's watch.
func Alone(s *pgsession.Session, lock namespace.Tag) (bool, error) {
	k, _ := lock.Single()
	row, err := s.Query(fmt.Sprintf("SELECT pg_catalog.pg_try_advisory_xact_lock('%d'::pg_catalog.int8), pg_catalog.pg_backend_pid()", k))
	return err == nil && row[0] == "t", err
}
