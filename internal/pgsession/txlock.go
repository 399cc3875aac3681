package pgsession

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/session"
	"github.com/pglatch/pglatch/namespace"
)

// A transaction-scoped lock is taken by a DO block, which leaves what came of it for the
// statement after it (see TxExec). It has no arguments, so that drivers do not prepare it
// for each key.

// TxTry takes transaction-scoped locks that are free, in the order of the tags, up to
// the first that is held: n says how many. With all set it takes all or none: then the
// transaction has n of them only if n is all. Outside of a transaction nothing stays
// locked, and the error matches session.ErrNoTransaction. A server that has the
// functions and no locks is session.ErrUnsupported; it is asked once in each session.
func TxTry(ctx context.Context, tx Tx, tags []namespace.Tag, mode session.Mode, all bool) (n int, err error) {
	var tries strings.Builder
	for i, tag := range tags {
		suffix, args := literals(tag, mode)
		fmt.Fprintf(&tries, `
		IF n_granted OPERATOR(pg_catalog.=) %d THEN
			IF pg_catalog.pg_try_advisory_xact_lock%s(%s) THEN n_granted := %d; END IF;
		END IF;`, i, suffix, args, i+1)
	}
	if all && len(tags) > 1 { // the handler's savepoint gives back those that were granted
		fmt.Fprintf(&tries, `
		IF n_granted OPERATOR(pg_catalog.<) %d THEN RAISE EXCEPTION USING ERRCODE = 'PGL01', MESSAGE = 'pglatch: not all'; END IF;
	EXCEPTION WHEN SQLSTATE 'PGL01' THEN NULL;`, len(tags))
	}
	block := fmt.Sprintf(`DECLARE
	n_granted pg_catalog.int4 := 0;
BEGIN
	BEGIN%s
	END;
	%%s
END`, tries.String())
	kept := 1
	if all {
		kept = len(tags)
	}
	answer, err := txDo(ctx, tx, block, kept, tags[0])
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(answer)
}

// TxWait waits for a transaction-scoped lock for one wait step. The block's exception
// handler is a savepoint: a wait that runs out leaves the transaction usable, and
// writes nothing to the server's log. lock_timeout is as before in either case.
func TxWait(ctx context.Context, tx Tx, tag namespace.Tag, mode session.Mode, limit time.Duration) (bool, error) {
	suffix, args := literals(tag, mode)
	block := fmt.Sprintf(`DECLARE
	before pg_catalog.text := pg_catalog.current_setting('lock_timeout');
	n_granted pg_catalog.int4 := 0;
BEGIN
	BEGIN
		PERFORM pg_catalog.set_config('lock_timeout', '%s', true);
		PERFORM pg_catalog.pg_advisory_xact_lock%s(%s);
		PERFORM pg_catalog.set_config('lock_timeout', before, true);
		n_granted := 1;
	EXCEPTION WHEN lock_not_available THEN NULL;
	END;
	%%s
END`, ms(max(min(limit, maxWaitStep), time.Millisecond)), suffix, args)
	answer, err := txDo(ctx, tx, block, 1, tag)
	return answer == "1", err
}

const unsupported = "unsupported"

// txDo runs a block in which %s leaves the answer, n_granted, and returns it. If that
// is kept or more, tag must be among the server's locks.
func txDo(ctx context.Context, tx Tx, block string, kept int, tag namespace.Tag) (answer string, err error) {
	mark := rand.Text()
	leave := fmt.Sprintf(`IF n_granted OPERATOR(pg_catalog.>=) %[1]d THEN
		IF coalesce(pg_catalog.current_setting('pglatch.locks', true), '') OPERATOR(pg_catalog.<>) 'yes' THEN
			IF EXISTS (SELECT FROM pg_catalog.pg_locks WHERE pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() AND granted AND %[2]s) THEN
				PERFORM pg_catalog.set_config('pglatch.locks', 'yes', false);
			ELSE
				PERFORM pg_catalog.set_config('pglatch.outcome', '%[3]s:%[4]s', true);
				RETURN;
			END IF;
		END IF;
	END IF;
	PERFORM pg_catalog.set_config('pglatch.outcome', pg_catalog.concat('%[3]s:', n_granted), true);`, kept, whereKey(tag), mark, unsupported)
	if err := tx.Exec(ctx, "DO $pglatch$\n"+fmt.Sprintf(block, leave)+" $pglatch$"); err != nil {
		return "", txError(err)
	}
	answer, err = txOutcome(ctx, tx, mark)
	if answer == unsupported {
		return "", fmt.Errorf("%w: it granted one, and its pg_locks does not have it", session.ErrUnsupported)
	}
	return answer, err
}

// TxHolder is Session.Holder in a transaction of the caller's, which must be usable.
func TxHolder(ctx context.Context, tx Tx, tag namespace.Tag) (holder session.Holder, ok bool, err error) {
	var text string
	err = tx.QueryRow(ctx, `SELECT coalesce((SELECT pg_catalog.json_build_array(h.pid::pg_catalog.text, h.mode, h.application_name, h.addr, h.state, h.start::pg_catalog.text)::pg_catalog.text
	FROM (`+holderSQL(tag)+`) AS h), '')`, nil, &text)
	if err != nil || text == "" {
		return holder, false, txError(err)
	}
	var columns [6]*string
	if err := json.Unmarshal([]byte(text), &columns); err != nil {
		return holder, false, err
	}
	var values [6]string
	for i, c := range columns {
		if c != nil {
			values[i] = *c
		}
	}
	return holderFrom(values), true, nil
}
