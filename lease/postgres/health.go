package postgres

import (
	"context"
	"errors"

	"github.com/pglatch/pglatch/lease"
)

var _ lease.HealthReporter = (*Store)(nil)

// healthSQL reads a lease of a name that nobody has, which needs the schema and the rights. It also
// reads whether this transaction could write. It could not on a standby, or if
// default_transaction_read_only is set (PostgreSQL manual, 19.11.1 and 26.4.1).
const healthSQL = `SELECT pg_catalog.current_setting('transaction_read_only') = 'on', (SELECT pg_catalog.count(*) FROM pglatch_lease.get('readyz'))`

var errReadOnly = errors.New("the server is read-only, as a standby is: lead the connections to the primary, for example with target_session_attrs=read-write")

// Health returns nil if the server answers and accepts writes; see lease.HealthReporter. On
// a read-only server the error matches lease.ErrBusy, as the errors of the Store's
// operations do.
func (s *Store) Health(ctx context.Context) error {
	conn, err := s.conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	var readOnly bool
	if err := conn.QueryRow(ctx, healthSQL).Scan(&readOnly, nil); err != nil {
		return failed(err)
	}
	if readOnly {
		return busyError(errReadOnly)
	}
	return nil
}
