package postgres

import "github.com/pglatch/pglatch/leader/shards/driver"

// PIDOf is the server's number of a session.
func PIDOf(s driver.Session) uint32 { return s.(*lockSession).pid }

// Statements is how many statements a session has had an answer to.
func Statements(s driver.Session) int64 { return s.(*lockSession).dialer.Stats().PIDChecks }
