package turns

import (
	"context"
	_ "embed" // the schema
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/pgtable"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

const schemaName = "pglatch_turns"

// The parts of the schema, in order.
var (
	//go:embed schema/tables.sql
	tablesSQL string
	//go:embed schema/send.sql
	sendSQL string
	//go:embed schema/serve.sql
	serveSQL string
	//go:embed schema/list.sql
	listSQL string
)

// schema is the schema that this program makes, and needs at least.
var schema = pgtable.Schema{
	Name:    schemaName,
	Version: 4, // 2: claim has p_since; 3: put costs less; 4: looks and commits under a snapshot
	SQL:     strings.Join([]string{tablesSQL, sendSQL, serveSQL, listSQL}, ""),
	Lock:    0x70677475726e730a,
}

// migrateWait bounds the wait of a migration for transactions that use the tables.
const migrateWait = "10s"

// Schema returns SQL for migrations. It makes the schema pglatch_turns or updates an older one. It can be
// run again. Run it in one transaction. It fails, and changes nothing, if the schema is of a later
// version than this program's. The mailbox itself is made by Mailbox.Migrate or by Serve.
func Schema() string { return schema.Script() }

// Grants returns the SQL that lets the role sender send and the role server serve. "" = no such role. A sender
// has no right on a table: the functions that it may call run with the rights of the schema's owner, and their
// search_path is fixed.
func Grants(sender, server string) string {
	var b strings.Builder
	if sender != "" {
		role := pgx.Identifier{sender}.Sanitize()
		fmt.Fprintf(&b, "GRANT USAGE ON SCHEMA pglatch_turns TO %[1]s;\nGRANT EXECUTE ON FUNCTION %[2]s TO %[1]s;\n", role, strings.Join(forSenders, ", "))
	}
	if server != "" {
		role := pgx.Identifier{server}.Sanitize()
		fmt.Fprintf(&b, "GRANT USAGE ON SCHEMA pglatch_turns TO %[1]s;\nGRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pglatch_turns TO %[1]s;\n"+
			"GRANT USAGE ON ALL SEQUENCES IN SCHEMA pglatch_turns TO %[1]s;\nGRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pglatch_turns TO %[1]s;\n", role)
	}
	return b.String()
}

// forSenders are the functions that a sender calls.
var forSenders = []string{
	"pglatch_turns.put(text, text, text, bytea, text, bigint)",
	"pglatch_turns.pglatch_send(text, text, bytea, text, text, bigint)",
	"pglatch_turns.outcome(text, text, bigint, text)",
}

// Migrate makes the schema pglatch_turns or updates an older one, and stores the mailbox with its limits. Many
// processes may call it at the same time, and while programs use the mailbox. If the schema is as new as this
// program or newer, it needs only the rights of a server. ErrNotReady means that the role lacks a right, or
// that the mailbox exists with another namespace.
func (m *Mailbox) Migrate(ctx context.Context) error {
	err := schema.Migrate(ctx, m.config.Pool, migrateWait)
	if sqlstate.Of(err) == sqlstate.Privilege {
		return fmt.Errorf("%w: the role may not make the schema %s: let one that may run Mailbox.Migrate or turns.Schema: %w", ErrNotReady, schemaName, err)
	}
	if err != nil {
		return fmt.Errorf("turns: making the schema %s: %w", schemaName, err)
	}
	return m.register(ctx)
}

var errNamespace = errors.New("the mailbox exists with another namespace: its entities would have other keys")

// register stores the mailbox and its limits. It refuses a schema that is too old to be served.
func (m *Mailbox) register(ctx context.Context) error {
	c := m.config
	if version, err := schema.Installed(ctx, c.Pool); err == nil && 0 < version && version < schema.Version {
		return fmt.Errorf("%w: the schema %s has version %d, and this program needs version %d: run Mailbox.Migrate or turns.Schema", ErrNotReady, schemaName, version, schema.Version)
	}
	same, err := ask[bool](ctx, m, `SELECT pglatch_turns.open_mailbox($1::pg_catalog.text, $2::pg_catalog.text, $3::pg_catalog.int8, $4::pg_catalog.int8, $5::pg_catalog.text::pg_catalog.interval, $6::pg_catalog.bool, $7::pg_catalog.text::pg_catalog.interval, $8::pg_catalog.int8)`,
		c.Namespace.String(), int64(c.MaxBytes), int64(c.MaxDepth), interval(c.Quiet), c.RefuseBusy, interval(c.KeepIDs), int64(c.MaxTotal))
	if err == nil && !same { // it has changed nothing
		err = fmt.Errorf("%w: %w", ErrNotReady, errNamespace)
	}
	return err
}
