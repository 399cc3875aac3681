package pgelection

import (
	"fmt"
	"strings"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/namespace"
)

// Contested reports whether another session holds the lock or waits for it. It ends a
// watch.
func Contested(s *pgsession.Session, tag namespace.Tag) (bool, error) {
	row, err := s.Query(fmt.Sprintf(`
	SELECT EXISTS (SELECT FROM pg_catalog.pg_locks WHERE %s AND pid IS DISTINCT FROM pg_catalog.pg_backend_pid()),
		pg_catalog.pg_backend_pid()`, pgsession.WhereKey(tag)))
	return err == nil && row[0] == "t", err
}

// Alone reports whether nobody else has one of the locks, which are single keys: it takes all of them for the
// one statement. It ends a watch.
func Alone(s *pgsession.Session, locks ...namespace.Tag) (bool, error) {
	var tries []string
	for _, lock := range locks {
		k, _ := lock.Single()
		tries = append(tries, fmt.Sprintf("pg_catalog.pg_try_advisory_xact_lock('%d'::pg_catalog.int8)", k))
	}
	row, err := s.Query("SELECT " + strings.Join(tries, " AND ") + ", pg_catalog.pg_backend_pid()")
	return err == nil && row[0] == "t", err
}
