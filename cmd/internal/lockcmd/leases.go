package lockcmd

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/fleetreader"
	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/legible"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/monitor/fleet"
)

const (
	mostLeases   = 1000                    // of a lock server
	leasesWithin = 1500 * time.Millisecond // for all of them, or watch would show old keys
	mostOfName   = 160                     // characters of a name
)

// A leaseLister lists the leases of a lock server beside the keys of the database, if a flag selects one.
type leaseLister struct {
	flags  lockserver.ClientFlags
	client *leasehttp.Client // nil = none
}

func (l *leaseLister) addFlag(cmd *cobra.Command) {
	cmd.Flags().StringSliceVar(&l.flags.URLs, "server", nil, "show the leases of the lock server at this `URL` too, or of several that share a store, repeatable; its token is in PGLATCH_LOCK_TOKEN")
}

// open makes the client, which has not connected yet. The caller closes the leaseLister.
func (l *leaseLister) open(app *program.App) (err error) {
	if len(l.flags.URLs) > 0 {
		l.client, err = l.flags.Client(app, 0)
	}
	return err
}

func (l *leaseLister) close() {
	if l.client != nil {
		l.client.Close()
	}
}

// read returns the leases that are held, expired or waited for, by their names; nil = no flag selects a server.
func (l *leaseLister) read(ctx context.Context) (all []fleet.Lease, err error) {
	if l.client == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, leasesWithin)
	defer cancel()
	all = []fleet.Lease{}
	for record, err := range l.client.List(ctx, lease.ListRequest{Limit: mostLeases}) {
		if err != nil {
			return nil, err
		}
		if record.State == lease.Free && (record.Waiters == nil || *record.Waiters == 0) {
			continue
		}
		one := fleetreader.LeaseOf(record)
		one.Name, one.Holder = legible.Quote(one.Name, mostOfName), legible.Quote(one.Holder, mostOfName)
		all = append(all, one)
	}
	return all, nil
}

// sections returns the leases as a table, or a line that says why there are none.
func (l *leaseLister) sections(all []fleet.Lease, err error) []overview.Section {
	switch {
	case l.client == nil:
		return nil
	case err != nil:
		return []overview.Section{overview.Unread("the lock server", program.Printable(err.Error()))}
	}
	return overview.ServerLeases(all)
}
