package sqlite

import (
	"context"
	"errors"
	"fmt"
)

// applicationID marks the files of this package; user_version counts migrations.
const applicationID = 0x70676c31 // "pgl1"

// migrations lead from each version of the file to the next, the first from an empty one. None is
// ever changed.
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

	// Tables with a sweep's work, the ends of leases, and the reserved tokens. The triggers are for
	// other programs that change rows: this package's own writes fire none but leases_delete. A
	// version 1 has no reserve: its WAL had, and lost, less than a million changes.
	`ALTER TABLE leases ADD COLUMN due_at INTEGER NOT NULL DEFAULT 0;
	ALTER TABLE leases ADD COLUMN swept INTEGER NOT NULL DEFAULT 0;
	ALTER TABLE leases ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
	CREATE TABLE due (
		swept INTEGER NOT NULL,
		at    INTEGER NOT NULL,
		name  TEXT    NOT NULL,
		PRIMARY KEY (swept, at, name)
	) STRICT, WITHOUT ROWID;
	INSERT INTO due SELECT 0, 0, name FROM leases;
	CREATE TABLE expiring (
		period INTEGER NOT NULL PRIMARY KEY,
		leases INTEGER NOT NULL
	) STRICT;
	INSERT INTO expiring SELECT expires_at / 10000000000, count(*) FROM leases
		WHERE released_at = 0 AND cleared = 0 GROUP BY 1;
	ALTER TABLE state ADD COLUMN reserved INTEGER NOT NULL DEFAULT 0;
	ALTER TABLE state ADD COLUMN era INTEGER NOT NULL DEFAULT 0;
	ALTER TABLE state ADD COLUMN sum INTEGER NOT NULL DEFAULT 0;
	UPDATE state SET floor = max(floor, ifnull((SELECT max(max(token, version)) FROM leases), 0)) + 1048576,
		seen_at = max(seen_at, ifnull((SELECT max(max(acquired_at, released_at)) FROM leases), 0));
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
	END;`,
}

// prepareFile checks the file and updates it to the current version.
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
	// Only now, so that a foreign file stays unchanged.
	if err := c.run("PRAGMA journal_mode = WAL"); err != nil {
		return err
	}
	return c.migrate(int(version))
}

func (c *conn) migrate(version int) error {
	for fresh := version == 0; version < len(migrations); version++ {
		if err := c.run("BEGIN IMMEDIATE"); err != nil {
			return err
		}
		err := c.run(migrations[version])
		if last := version == len(migrations)-1; err == nil && fresh && last {
			err = c.run("UPDATE state SET floor = 0") // no token was given
		}
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
