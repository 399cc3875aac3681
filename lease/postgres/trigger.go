package postgres

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgsession"
)

// FencedCode is the SQLSTATE of a write that a FenceTrigger refused.
const FencedCode = "PGL02"

// FenceTrigger returns the SQL of a trigger that fences a table, for use in a migration. The
// trigger refuses an update that sets column to a token that is null, or lower than the row's
// present token. The refusal is an error with FencedCode, which aborts the transaction. Use it
// where writers cannot use Guard: in other database systems, and in transactions that are not
// on the database of the leases.
//
// Each update must set the column to the token of the writer's lease; an update that does not set
// the column is not refused. When a row is deleted, its token is forgotten. table is "table",
// found by the search_path, or "schema.table"; both names are taken literally. The column must be
// a bigint. The SQL can be run again.
func FenceTrigger(table, column string) string {
	path := strings.SplitN(table, ".", 2)
	last := len(path) - 1
	function := append([]string{}, path...)
	function[last] = fitting(path[last] + "_" + column + "_fence")
	return fmt.Sprintf(`CREATE OR REPLACE FUNCTION %[1]s() RETURNS trigger LANGUAGE plpgsql AS $pglatch$
BEGIN
	IF (NEW.%[3]s OPERATOR(pg_catalog.>=) OLD.%[3]s) IS NOT TRUE AND OLD.%[3]s IS NOT NULL THEN
		RAISE EXCEPTION 'pglatch: fenced off: the row of %% has token %%, the write %%', TG_RELID::pg_catalog.regclass, OLD.%[3]s, NEW.%[3]s
			USING ERRCODE = %[4]s, COLUMN = %[5]s;
	END IF;
	RETURN NEW;
END $pglatch$;
CREATE OR REPLACE TRIGGER %[6]s BEFORE UPDATE ON %[2]s FOR EACH ROW EXECUTE FUNCTION %[1]s();
`, pgx.Identifier(function).Sanitize(), pgx.Identifier(path).Sanitize(), pgx.Identifier{column}.Sanitize(),
		pgsession.Literal(FencedCode), pgsession.Literal(column), pgx.Identifier{function[last]}.Sanitize())
}

// longestName is how many bytes of a name PostgreSQL keeps.
const longestName = 63

// fitting returns name. If name is too long, it returns a prefix of it and a hash of the whole.
// PostgreSQL would truncate long names, and two of them could become equal.
func fitting(name string) string {
	if len(name) <= longestName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	end := longestName - 2*len(sum[:6]) - 1
	return strings.ToValidUTF8(name[:end], "") + "_" + hex.EncodeToString(sum[:6])
}
