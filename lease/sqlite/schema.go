package sqlite

import (
	"context"
	"errors"
	"fmt"
)

// applicationID marks the files of this package, as user_version counts migrations.
const applicationID = 0x70676c31 // "pgl1"

// migrations lead from each version of the file to the next, the first from an empty
// one. None is ever changed.
var migrations = []string{
	`CREATE TABLE leases (
		name            TEXT    NOT NULL PRIMARY KEY,
		holder          TEXT    NOT NULL,
		id              TEXT    NOT NULL,
		token           INTEGER NOT NULL,
		idempotency_key TEXT    NOT NULL,
		acquired_at     INTEGER NOT NULL,
		expires_at      INTEGER NOT NULL,
		released_at     INTEGER NOT NULL,
		lock_delay      INTEGER NOT NULL,
		min_hold        INTEGER NOT NULL,
		max_lifetime    INTEGER NOT NULL,
		cleared         INTEGER NOT NULL,
		uncounted       INTEGER NOT NULL,
		version         INTEGER NOT NULL,
		metadata        TEXT    NOT NULL
	) STRICT, WITHOUT ROWID;
	CREATE TABLE state (
		one     INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
		floor   INTEGER NOT NULL,
		seen_at INTEGER NOT NULL
	) STRICT;
	INSERT INTO state VALUES (1, 0, 0);`,
}

// prepareFile checks the file and brings it to the present version.
func (c *conn) prepareFile() error {
	version, err := c.integer("PRAGMA user_version")
	if err != nil {
		return err
	}
	id, err := c.integer("PRAGMA application_id")
	if err != nil {
		return err
	}
	tables, err := c.integer("SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return err
	}
	if empty := version == 0 && id == 0 && tables == 0; !empty && id != applicationID || version > int64(len(migrations)) {
		return fmt.Errorf("%w: application_id %d, user_version %d", ErrForeign, id, version)
	}
	// Only now, so that a file of somebody else is left as it is.
	if err := c.run("PRAGMA journal_mode = WAL"); err != nil {
		return err
	}
	return c.migrate(int(version))
}

func (c *conn) migrate(version int) error {
	for ; version < len(migrations); version++ {
		if err := c.run("BEGIN IMMEDIATE"); err != nil {
			return err
		}
		err := c.run(migrations[version])
		if err == nil {
			err = c.run(fmt.Sprintf("PRAGMA application_id = %d", applicationID))
		}
		if err == nil {
			err = c.run(fmt.Sprintf("PRAGMA user_version = %d", version+1))
		}
		if err == nil {
			err = c.run("COMMIT")
		}
		if err != nil {
			return errors.Join(err, c.run("ROLLBACK"))
		}
	}
	return nil
}

// check reads the whole file, for pages that are damaged or missing. A store that
// cannot read a row must not take its name for free.
func (c *conn) check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	stmt, err := c.raw.Prepare("PRAGMA quick_check(1)")
	if err != nil {
		return err
	}
	dest := c.row[:1]
	_, err = c.first(stmt, dest)
	if err = errors.Join(err, stmt.Close()); err != nil {
		return err
	}
	if verdict, _ := dest[0].(string); verdict != "ok" {
		return fmt.Errorf("%w: %s", ErrCorrupt, verdict)
	}
	return nil
}
