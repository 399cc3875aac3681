package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/internal/judge"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/ledgertest"
)

// The table that the tenants' work writes to. It knows nothing of locks and leases. n orders the
// writes of a tenant: the guard of a new term waits for transactions of the last one.
const ledgerSchema = `CREATE TABLE acts (
	n      bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	tenant text NOT NULL,
	term   bigint NOT NULL,
	node   text NOT NULL,
	at     timestamptz NOT NULL DEFAULT clock_timestamp()
)`

// readTerms returns the content of the table, as the judge of the fault tests sees it, and the tenants of its keys.
func readTerms(d *dbtest.Database) (terms *judge.Terms, names []string) {
	terms, names, err := ledgertest.ReadTerms(d.Context(), d.Pool, `SELECT tenant, term, node, at FROM acts ORDER BY n`)
	demokit.Check(err)
	return terms, names
}

// A gap is the time before a term of a tenant in which nobody worked for it.
type gap struct {
	Tenant string
	Gap    time.Duration
}

// gaps returns the gaps of some tenants before terms that began since a moment, the shortest first. It leaves out each
// tenant's first term. The time before that moment does not count: nothing was wrong then.
func gaps(d *dbtest.Database, since time.Time, tenants []string) (found []gap) {
	terms, names := readTerms(d)
	for key, began := range terms.Since(since) {
		for _, t := range began {
			if t.Gap > 0 && slices.Contains(tenants, names[key]) {
				found = append(found, gap{names[key], min(t.Gap, t.Began.Sub(since))})
			}
		}
	}
	slices.SortFunc(found, func(a, b gap) int { return cmp.Compare(a.Gap, b.Gap) })
	return found
}

// tenantsOf returns the tenants that have gaps.
func tenantsOf(gaps []gap) (names []string) {
	for _, g := range gaps {
		names = append(names, g.Tenant)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
