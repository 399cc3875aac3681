package prove

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A session is one connection through the user's connection string. One goroutine at a time uses it.
type session struct {
	of       *examiner
	conn     *pgconn.PgConn
	pid      uint32 // of the first answer
	messages []*pgconn.Notification
}

// open connects, and asks which server process answers.
func (e *examiner) open(ctx context.Context) (*session, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, bound, errors.New(noAnswer))
	defer cancel()
	s := &session{of: e}
	config := e.config.Copy()
	config.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { s.messages = append(s.messages, n) }
	var err error
	if s.conn, err = pgconn.ConnectConfig(ctx, &config.Config); err != nil {
		return nil, err
	}
	row, err := s.ask(ctx, "1")
	if err == nil {
		s.pid, err = pidOf(row[len(row)-1])
	}
	if err != nil {
		s.close(ctx)
		return nil, err
	}
	return s, nil
}

func pidOf(text string) (uint32, error) {
	pid, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("the server has no process id: %w", err)
	}
	return uint32(pid), nil
}

// ask selects a list of expressions, and returns the last row. Its last column is the pid. rest is what follows the list.
func (s *session) ask(ctx context.Context, list string, rest ...string) ([]string, error) {
	row, err := s.run(ctx, "select "+list+", pg_catalog.pg_backend_pid() "+strings.Join(rest, " "))
	if err != nil {
		return nil, err
	}
	if len(row) == 0 {
		return nil, errors.New("the server answered without a row")
	}
	pid, err := pidOf(row[len(row)-1])
	if err == nil && s.pid != 0 && pid != s.pid {
		s.of.moved.Store(true)
	}
	return row, err
}

// run executes statements, and returns the last row of the last one.
func (s *session) run(ctx context.Context, sql string) (row []string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, bound, errors.New(noAnswer))
	defer cancel()
	return s.runFor(ctx, sql)
}

// runFor is run without a time limit of its own.
func (s *session) runFor(ctx context.Context, sql string) (row []string, err error) {
	results, err := s.conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	if len(results) > 0 {
		for _, r := range results[len(results)-1].Rows {
			row = row[:0]
			for _, column := range r {
				row = append(row, string(column))
			}
		}
	}
	return row, nil
}

// close ends the connection, and with it the session's locks.
func (s *session) close(ctx context.Context) {
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeBound)
	defer cancel()
	_ = s.conn.Close(ctx)
}

// A waiter is a session that waits in the queue of a lock.
type waiter struct {
	session *session
	done    chan struct{}
	err     error // valid after done
}

func (w *waiter) answered() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// connConfig prepares the configuration of the examiner's sessions.
func connConfig(config *pgx.ConnConfig) *pgx.ConnConfig {
	config = config.Copy()
	config.ConnectTimeout = min(max(config.ConnectTimeout, time.Second), bound)
	return config
}
