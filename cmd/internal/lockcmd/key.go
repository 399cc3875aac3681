package lockcmd

import (
	"bytes"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/namespace"
)

// A keyDocument is a key as SQL and pg_locks have it.
type keyDocument struct {
	Key      string `json:"key"`
	Form     string `json:"form"` // "pair" or "single"
	ClassID  uint32 `json:"classid"`
	ObjID    uint32 `json:"objid"`
	ObjSubID uint16 `json:"objsubid"`
	// Key1, Key2 and Bigint are the key's 64 bits in both forms. Only those of Form name this lock:
	// PostgreSQL keeps the two forms apart.
	Key1   int32 `json:"key1"`
	Key2   int32 `json:"key2"`
	Bigint int64 `json:"bigint,string"` // numbers in JSON are exact only up to 2⁵³
	// Turnstile is the single key that a waiter for this key takes first. Its queue is this key's
	// queue without the first waiter.
	Turnstile int64  `json:"turnstile,string"`
	Lock      string `json:"lock_sql"`
	Query     string `json:"query_sql"`
}

func describeKey(k namespace.Key) keyDocument {
	t := k.Tag()
	pair, single := t, t
	pair.ObjSubID, single.ObjSubID = namespace.PairForm, namespace.SingleForm
	d := keyDocument{Key: k.String(), Form: "single", ClassID: t.ClassID, ObjID: t.ObjID, ObjSubID: t.ObjSubID}
	d.Key1, d.Key2, _ = pair.Pair()
	d.Bigint, _ = single.Single()
	argument := strconv.FormatInt(d.Bigint, 10)
	if t.ObjSubID == namespace.PairForm {
		d.Form, argument = "pair", fmt.Sprintf("%d, %d", d.Key1, d.Key2)
	}
	d.Lock = fmt.Sprintf("SELECT pg_advisory_lock(%s);", argument)
	gate := turnstile.Of(t)
	d.Turnstile, _ = gate.Single()
	d.Query = fmt.Sprintf("SELECT CASE WHEN %[1]s THEN 'key' ELSE 'turnstile' END AS lock, l.pid, l.mode, l.granted, a.application_name, a.state, now() - l.waitstart AS waiting "+
		"FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid) WHERE l.locktype = 'advisory' AND (%[1]s OR %[2]s) "+
		"AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database());", whereTag(t), whereTag(gate))
	return d
}

// whereTag selects a lock in pg_locks l.
func whereTag(t namespace.Tag) string {
	return fmt.Sprintf("l.classid = %d AND l.objid = %d AND l.objsubid = %d", t.ClassID, t.ObjID, t.ObjSubID)
}

// NewKey returns the command key.
func NewKey(app *program.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "key KEY",
		Short: "Show how a key appears in SQL and pg_locks",
		Long: `Show how a key appears in SQL and in pg_locks, and a query for psql. No database is needed.

A waiter first takes the key's turnstile, which is another lock, and keeps it until it has
the key; waiters behind it wait for the turnstile. The query shows both.

PostgreSQL keeps the two forms of a key apart: pg_advisory_lock(1, 42) and
pg_advisory_lock(4294967338) have the same 64 bits and are different locks.`,
		RunE: func(_ *cobra.Command, args []string) error {
			k, err := app.Key(args)
			if err != nil {
				return err
			}
			d := describeKey(k)
			return app.Print(program.Output{Document: d, Text: d.text})
		},
	}
	app.AddKeyFlags(cmd)
	return cmd
}

func (d keyDocument) text(w *bytes.Buffer) {
	pair, single := "", " (another lock)"
	if d.Form == "single" {
		pair, single = single, pair
	}
	fmt.Fprintf(w, "key       %s\nclassid   %d\nobjid     %d\nobjsubid  %d\n", program.Printable(d.Key), d.ClassID, d.ObjID, d.ObjSubID)
	fmt.Fprintf(w, "two int4  %d, %d%s\nbigint    %d%s\n", d.Key1, d.Key2, pair, d.Bigint, single)
	fmt.Fprintf(w, "turnstile %d\n", d.Turnstile)
	fmt.Fprintf(w, "take      %s\nlook      %s\n", d.Lock, d.Query)
}
