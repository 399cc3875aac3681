package pgsession

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/namespace"
)

// Every statement for locks in a caller's transaction has a constant text. pg_stat_statements keeps an entry for each
// text of a DO block, and drivers prepare each text of a query: a key in the text would fill both. A DO block takes no
// parameters, so a SELECT before it stores them in a setting that ends with the transaction.

// TxTry takes free transaction-scoped locks, in the order of the tags, up to the first that is held; n is their number.
// With all set it takes all or none: the transaction then has n of them only if n is all. A shared lock counts as held
// if another session has its turnstile in exclusive mode. Outside of a transaction no lock stays, and the error matches
// session.ErrNoTransaction. On a standby no lock is taken either: session.ErrStandby. A server that has the functions
// but no locks is session.ErrUnsupported; it is checked once in each session.
func TxTry(ctx context.Context, tx Tx, tags []namespace.Tag, mode session.Mode, all bool) (n int, err error) {
	var answer string
	if mode == session.Shared || all && len(tags) > 1 {
		answer, err = txRun(ctx, tx, trySavepointSQL, txRequestSQL, modeName(mode), allName(all), triples(tags))
	} else {
		var keys, forms []string
		for _, tag := range tags {
			keys = append(keys, strconv.FormatInt(int64(int8Of(tag)), 10))
			forms = append(forms, strconv.Itoa(int(tag.ObjSubID)))
		}
		answer, err = TxAsk(ctx, tx, txTrySQL, braces(keys), braces(forms))
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(answer)
}

func modeName(mode session.Mode) string {
	if mode == session.Shared {
		return "shared"
	}
	return "exclusive"
}

func allName(all bool) string {
	if all {
		return "all"
	}
	return "some"
}

// triples returns an array with key, form and turnstile of each tag, as text.
func triples(tags []namespace.Tag) string {
	elements := make([]string, len(tags))
	for i, tag := range tags {
		elements[i] = fmt.Sprintf("{%d,%d,%d}", int64(int8Of(tag)), tag.ObjSubID, int64(int8Of(turnstile.Of(tag))))
	}
	return braces(elements)
}

func braces(elements []string) string { return "{" + strings.Join(elements, ",") + "}" }

const (
	unsupported = "unsupported"
	standby     = "standby"
)

// keptSQL returns the answer n after locks were taken, or that the server has none: pg_locks shows none of this
// session's.
func keptSQL(n string) string {
	return `CASE WHEN pg_catalog.current_setting('pglatch.locks', true) OPERATOR(pg_catalog.=) 'yes' THEN ` + n + `::pg_catalog.text
		WHEN NOT EXISTS (SELECT FROM pg_catalog.pg_locks WHERE locktype OPERATOR(pg_catalog.=) 'advisory' AND granted AND pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid())
		THEN '` + unsupported + `'
		WHEN pg_catalog.set_config('pglatch.locks', 'yes', false) IS NULL THEN NULL ELSE ` + n + `::pg_catalog.text END`
}

// txTrySQL tries exclusive locks in their order, up to the first that is refused: LIMIT pulls one row at a time through
// the filter of a function scan.
var txTrySQL = `SELECT pg_catalog.set_config('pglatch.outcome', pg_catalog.concat($1::pg_catalog.text, CASE
	WHEN pg_catalog.pg_is_in_recovery() THEN '` + standby + `'
	ELSE (SELECT CASE WHEN n OPERATOR(pg_catalog.=) 0 THEN '0' ELSE ` + keptSQL("n") + ` END FROM (SELECT coalesce((
		SELECT k.o OPERATOR(pg_catalog.-) 1 FROM ROWS FROM (pg_catalog.unnest($2::pg_catalog.text::pg_catalog.int8[]), pg_catalog.unnest($3::pg_catalog.text::pg_catalog.int2[])) WITH ORDINALITY AS k(key, form, o)
		WHERE NOT ` + formed("pg_try_advisory_xact_lock", "k.key", "k.form OPERATOR(pg_catalog.=) 2") + ` LIMIT 1),
		pg_catalog.cardinality($2::pg_catalog.text::pg_catalog.int8[])) AS n OFFSET 0) AS taken) END), true)`

// txRequestSQL stores parameters for a DO block, after the mark.
const txRequestSQL = `SELECT pg_catalog.set_config('pglatch.request', pg_catalog.concat_ws(' ', $1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.text, $4::pg_catalog.text), true)`

// requestSQL declares the parameters in a DO block. Outside of a transaction they are missing.
const requestSQL = `r pg_catalog.text[] := ` + partsSQL + `;
	shared pg_catalog.bool := ` + sharedSQL + `;`

const (
	partsSQL  = `pg_catalog.string_to_array(pg_catalog.current_setting('pglatch.request', true), ' ')`
	sharedSQL = `r[2] OPERATOR(pg_catalog.=) 'shared'`
)

// undo ends a block to release its locks: an error rolls back to the savepoint of a block with a handler. It is caught
// on the server, so it is not logged.
const undo = `RAISE EXCEPTION USING ERRCODE = 'PGL01', MESSAGE = 'pglatch: given back';`

// trySavepointSQL is for tries that take locks to release at once: the turnstiles that a reader passes, and locks of
// which not all are free. Parameters: mark, mode, all or some, triples.
var trySavepointSQL = `DO $pglatch$
DECLARE
	` + requestSQL + `
	triples pg_catalog.int8[] := r[4];
	k pg_catalog.int8[];
	passed pg_catalog.int4 := 0;
	n pg_catalog.int4 := 0;
	answer pg_catalog.text := '` + standby + `';
BEGIN
	IF r[1] IS NULL THEN RETURN; END IF;
	IF NOT pg_catalog.pg_is_in_recovery() THEN
		BEGIN
			FOREACH k SLICE 1 IN ARRAY triples LOOP
				EXIT WHEN shared AND NOT pg_catalog.pg_try_advisory_xact_lock_shared(k[3]) AND NOT ` + alreadySQL("k[1]", "k[2]") + `;
				passed := passed OPERATOR(pg_catalog.+) 1;
			END LOOP;
			` + undo + `
		EXCEPTION WHEN SQLSTATE 'PGL01' THEN NULL;
		END;
		BEGIN
			FOREACH k SLICE 1 IN ARRAY triples LOOP
				EXIT WHEN n OPERATOR(pg_catalog.=) passed;
				EXIT WHEN NOT ` + shaped("pg_try_advisory_xact_lock", "k[1]", "k[2] OPERATOR(pg_catalog.=) 2") + ` AND NOT (shared AND ` + alreadySQL("k[1]", "k[2]") + `);
				n := n OPERATOR(pg_catalog.+) 1;
			END LOOP;
			answer := CASE WHEN n OPERATOR(pg_catalog.=) 0 THEN '0' ELSE ` + keptSQL("n") + ` END;
			IF r[3] OPERATOR(pg_catalog.=) 'all' AND n OPERATOR(pg_catalog.<) pg_catalog.array_length(triples, 1) THEN ` + undo + ` END IF;
		EXCEPTION WHEN SQLSTATE 'PGL01' THEN NULL;
		END;
	END IF;
	PERFORM pg_catalog.set_config('pglatch.outcome', pg_catalog.concat(r[1], answer), true);
END $pglatch$`

// alreadySQL reports whether this session has a lock on a key, an int8 with its objsubid, in any mode. While a writer
// waits, PostgreSQL refuses a try in shared mode to the session that has the lock in exclusive mode.
func alreadySQL(key, objsubid string) string {
	return `EXISTS (SELECT FROM pg_catalog.pg_locks AS l WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.granted
		AND l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() AND l.objsubid OPERATOR(pg_catalog.=) ` + objsubid + `
		AND (l.classid::pg_catalog.int8 OPERATOR(pg_catalog.<<) 32 OPERATOR(pg_catalog.|) l.objid::pg_catalog.int8) OPERATOR(pg_catalog.=) ` + key + `)`
}

// formed calls a lock function for a key, an int8, which is that of a pair if the condition is true.
func formed(function, key, pair string) string {
	return fmt.Sprintf(`CASE WHEN %[3]s THEN pg_catalog.%[1]s((%[2]s OPERATOR(pg_catalog.>>) 32)::pg_catalog.int4, ((%[2]s OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.>>) 32)::pg_catalog.int4)
		ELSE pg_catalog.%[1]s(%[2]s) END`, function, key, pair)
}

// shaped is formed in the mode of the variable shared.
func shaped(function, key, pair string) string {
	return "CASE WHEN shared THEN " + formed(function+"_shared", key, pair) + " ELSE " + formed(function, key, pair) + " END"
}
