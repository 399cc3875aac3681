package actions

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/cmd/internal/leasecmd"
	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
)

// forceRelease is the name of the action on leases.
const forceRelease = "force-release"

// leaseKinds are the actions on leases.
func leaseKinds() []kind {
	return []kind{{name: forceRelease, text: "End another holder's lease", need: End, fields: []string{"lease"}, plan: forcing}}
}

// leases returns a client of the lock server, or else of the store in the database.
func (d *Database) leases(ctx context.Context) (*leasehttp.Client, func(), error) {
	if d.Leases == nil {
		return lockserver.Direct(ctx, d.App)
	}
	client, err := d.Leases()
	if err != nil {
		return nil, nil, err
	}
	return client, client.Close, nil
}

func forcing(ctx context.Context, d *Database, _ *lookup.Looker, r Request) (*plan, error) {
	client, closeAll, err := d.leases(ctx)
	if err != nil {
		return nil, err
	}
	defer closeAll()
	record, err := client.Get(ctx, r.Lease)
	if d.Leases == nil && errors.Is(err, lease.ErrNotReady) {
		return nil, &program.ExitError{Code: program.ExitUnavailable, Err: errors.New("this database has no leases, or its role may not end them: the monitor's log says which")}
	}
	if err != nil {
		return nil, leasecmd.ForceError(ctx, err)
	}
	name := quoted(record.Name)
	if record.State != lease.Held {
		return nil, &program.ExitError{Code: program.ExitFree, Err: fmt.Errorf("nobody has the lease of %s", name)}
	}
	where := "It is in this database's store."
	if d.Leases != nil {
		where = fmt.Sprintf("It is of the lock server %s, and of no other.", d.LockServer)
	}
	return &plan{
		title: fmt.Sprintf("End the lease of %s on %s", quoted(record.Holder), name),
		lines: []string{
			where,
			fmt.Sprintf("Fencing token %d, since %s, %v are left.", record.Token, record.AcquiredAt.UTC().Format(time.RFC3339), record.Remaining.Round(time.Millisecond)),
			"Its holder continues until its next renewal is refused: have the protected resource refuse its fencing token.",
		},
		same: fmt.Sprintf(forceRelease+" %s %d", record.Name, record.Token),
		run: func(ctx context.Context, why string) (string, error) {
			client, closeAll, err := d.leases(ctx)
			if err != nil {
				return "", err
			}
			defer closeAll()
			ended, delay, err := client.ForceRelease(ctx, leasehttp.ForceReleaseRequest{Name: record.Name, Token: record.Token, Reason: why})
			if err != nil {
				return "", leasecmd.ForceError(ctx, err)
			}
			return leasecmd.Forced(ended, delay), nil
		},
	}, nil
}
