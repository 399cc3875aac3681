package sqlite

import (
	"context"
	"errors"
	"fmt"
)

// applicationID marks the files of this package, as user_version their version.
const (
	applicationID = 0x70676c31 // "pgl1"
	schemaVersion = 1
)

// schema has tables with the leases, a sweep's work, the ends of leases, and the state. The triggers
// are for other programs that change rows: this package's own writes fire none but leases_delete.
const schema = `CREATE TABLE leases (
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
		metadata        TEXT    NOT NULL,
		due_at          INTEGER NOT NULL DEFAULT 0,
		swept           INTEGER NOT NULL DEFAULT 0,
		last_release    TEXT    NOT NULL DEFAULT '',
		sum             INTEGER NOT NULL DEFAULT 0
	) STRICT, WITHOUT ROWID;
	CREATE TABLE due (
		swept INTEGER NOT NULL,
		at    INTEGER NOT NULL,
		name  TEXT    NOT NULL,
		PRIMARY KEY (swept, at, name)
	) STRICT, WITHOUT ROWID;
	CREATE TABLE expiring (
		period INTEGER NOT NULL PRIMARY KEY,
		leases INTEGER NOT NULL
	) STRICT;
	CREATE TABLE state (
		one      INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
		floor    INTEGER NOT NULL,
		seen_at  INTEGER NOT NULL,
		reserved INTEGER NOT NULL,
		era      INTEGER NOT NULL,
		sum      INTEGER NOT NULL
	) STRICT;
	INSERT INTO state VALUES (1, 0, 0, 0, 0, 0);
	CREATE TRIGGER leases_insert AFTER INSERT ON leases WHEN NEW.due_at = 0 AND NEW.swept = 0 BEGIN
		INSERT OR IGNORE INTO due VALUES (0, 0, NEW.name);
		INSERT INTO expiring SELECT NEW.expires_at / 10000000000, 1 WHERE NEW.released_at = 0 AND NEW.cleared = 0
			ON CONFLICT (period) DO UPDATE SET leases = leases + 1;
	END;
	CREATE TRIGGER leases_update AFTER UPDATE ON leases BEGIN
		DELETE FROM due WHERE swept = OLD.swept AND at = OLD.due_at AND name = OLD.name;
		INSERT OR IGNORE INTO due VALUES (0, 0, NEW.name);
		UPDATE expiring SET leases = leases - 1
			WHERE period = OLD.expires_at / 10000000000 AND OLD.released_at = 0 AND OLD.cleared = 0;
		INSERT INTO expiring SELECT NEW.expires_at / 10000000000, 1 WHERE NEW.released_at = 0 AND NEW.cleared = 0
			ON CONFLICT (period) DO UPDATE SET leases = leases + 1;
		UPDATE leases SET due_at = 0, swept = 0, sum = 0 WHERE name = NEW.name;
	END;
	CREATE TRIGGER leases_delete AFTER DELETE ON leases BEGIN
		DELETE FROM due WHERE swept = OLD.swept AND at = OLD.due_at AND name = OLD.name;
		UPDATE expiring SET leases = leases - 1
			WHERE period = OLD.expires_at / 10000000000 AND OLD.released_at = 0 AND OLD.cleared = 0;
	END;
	CREATE TRIGGER state_update AFTER UPDATE ON state BEGIN
		UPDATE state SET sum = 0;
	END;`

// prepareFile checks the file, and creates the tables if it is new.
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
	empty := version == 0 && id == 0 && tables == 0
	if !empty && (id != applicationID || version != schemaVersion) {
		return fmt.Errorf("%w: application_id %d, user_version %d", ErrForeign, id, version)
	}
	// Only now, so that a foreign file stays unchanged.
	if err := c.run("PRAGMA journal_mode = WAL"); err != nil || !empty {
		return err
	}
	for _, text := range []string{
		"BEGIN IMMEDIATE", schema, fmt.Sprintf("PRAGMA application_id = %d", applicationID),
		fmt.Sprintf("PRAGMA user_version = %d", schemaVersion), "COMMIT",
	} {
		if err := c.run(text); err != nil {
			return errors.Join(err, c.run("ROLLBACK"))
		}
	}
	return nil
}

// checkedPages bounds the files that Open reads completely, so that its duration does not grow with
// the number of names. Larger files are checked page by page when they are read.
const checkedPages = 8192

// check reads the whole file, if it is not large, to find damaged or missing pages. If a store
// cannot read a row, it must not take its name for free.
func (c *conn) check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if pages, err := c.integer("PRAGMA page_count"); err != nil || pages > checkedPages {
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
