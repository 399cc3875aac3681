package leasecmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasehttp"
	"github.com/pglatch/pglatch/lease/shared"
)

func newAcquire(app *program.App) *cobra.Command {
	var (
		server lockserver.ClientFlags
		terms  terms
		wait   time.Duration
		export bool
	)
	cmd := &cobra.Command{
		Use:   "acquire NAME",
		Short: "Acquire a lease",
		Long: `Acquire a lease, and print it. It is not renewed automatically: use "lease renew", or let
"lease run" do everything.`,
		Example: `  eval "$(pglatch lease acquire job-lock --ttl 5m --export)" && ./job && pglatch lease release job-lock`,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := LockName(args)
			if err != nil {
				return err
			}
			if err := cmp.Or(terms.check(cmd.Flags(), name), program.CheckWait(wait)); err != nil {
				return err
			}
			client, err := server.Client(app, 0)
			if err != nil {
				return err
			}
			defer client.Close()
			held, err := terms.acquire(cmd.Context(), app, client, program.Waiting{Bounded: true, Wait: wait}, name)
			if err != nil {
				return lockserver.Error(cmd.Context(), err)
			}
			return printHeld(app, "acquired", held, export)
		},
	}
	f := cmd.Flags()
	server.AddFlags(f)
	terms.addFlags(f)
	f.DurationVarP(&wait, "wait", "w", 0, "wait up to this long for the lock, and for an unavailable server")
	f.StringVar(&terms.IdempotencyKey, "idempotency-key", "", "`text` that identifies the request: sent again, it gets the same lease")
	f.BoolVar(&export, "export", false, "print shell commands that set PGLATCH_LEASE_ID, PGLATCH_LEASE_OWNER and PGLATCH_FENCING_TOKEN, which renew and release read")
	return cmd
}

// printHeld prints a lease that the command got. With export, it prints variables for a shell to evaluate.
func printHeld(app *program.App, verb string, l *leasehttp.Lease, export bool) error {
	if !export {
		return printLease(app, verb, l.Last(), l.Share())
	}
	var b strings.Builder
	for _, v := range append(variables(l.Claim()), shareVariables(l.Share())...) {
		name, value, _ := strings.Cut(v, "=")
		fmt.Fprintf(&b, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
	}
	_, err := io.WriteString(os.Stdout, b.String())
	return err
}

// variables returns the environment variables for work under a lease.
func variables(c lease.Claim) []string {
	return []string{
		"PGLATCH_LEASE_NAME=" + c.Name, "PGLATCH_LEASE_OWNER=" + c.Holder, "PGLATCH_LEASE_ID=" + c.ID,
		"PGLATCH_FENCING_TOKEN=" + strconv.FormatUint(c.Token, 10),
	}
}

// A claimFlags identifies a lease.
type claimFlags struct {
	owner, id string
	token     uint64
}

func (c *claimFlags) addFlags(f *pflag.FlagSet) {
	c.addIDFlags(f)
	f.Uint64Var(&c.token, "fencing-token", 0, "of the lease (default: PGLATCH_FENCING_TOKEN)")
}

func (c *claimFlags) addIDFlags(f *pflag.FlagSet) {
	f.StringVar(&c.owner, "owner", "", "`name` of the owner (default: PGLATCH_LEASE_OWNER, else host name and process id)")
	f.StringVar(&c.id, "lease-id", "", "`id` of the lease (default: PGLATCH_LEASE_ID)")
}

func (c *claimFlags) claim(args []string) (lease.Claim, error) {
	name, err := LockName(args)
	if err != nil {
		return lease.Claim{}, err
	}
	claim := lease.Claim{Name: name, Holder: ownerName(c.owner), ID: cmp.Or(c.id, os.Getenv("PGLATCH_LEASE_ID")), Token: c.token}
	if text := os.Getenv("PGLATCH_FENCING_TOKEN"); claim.Token == 0 && text != "" {
		if claim.Token, err = strconv.ParseUint(text, 10, 64); err != nil {
			return claim, program.UsageError("PGLATCH_FENCING_TOKEN is %q: use a number", text)
		}
	}
	if claim.ID == "" || claim.Token == 0 {
		return claim, program.UsageError("give --lease-id and --fencing-token, as acquire printed them")
	}
	if err := claim.Validate(); err != nil {
		return claim, program.UsageError("%w", err)
	}
	return claim, nil
}

// A claimCommand is a command about an acquired lease.
type claimCommand struct {
	server lockserver.ClientFlags
	claimFlags
}

func (c *claimCommand) addFlags(f *pflag.FlagSet) {
	c.server.AddFlags(f)
	c.claimFlags.addFlags(f)
}

// run calls do with the claim from the arguments and flags.
func (c *claimCommand) run(cmd *cobra.Command, app *program.App, args []string, do func(context.Context, *leasehttp.Client, lease.Claim) error) error {
	claim, err := c.claim(args)
	if err != nil {
		return err
	}
	client, err := c.server.Client(app, 0)
	if err != nil {
		return err
	}
	defer client.Close()
	return do(cmd.Context(), client, claim)
}

func newRenew(app *program.App) *cobra.Command {
	var (
		c   claimCommand
		ttl time.Duration

		metadata map[string]string
		empty    bool // clears the metadata
	)
	cmd := &cobra.Command{
		Use:   "renew NAME",
		Short: "Renew a lease once, and change its metadata",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, app, args, func(ctx context.Context, client *leasehttp.Client, claim lease.Claim) error {
				if empty {
					metadata = map[string]string{}
				}
				l, err := client.Renew(ctx, lease.RenewRequest{Claim: claim, TTL: ttl, Metadata: metadata})
				if err != nil {
					return lockserver.Error(ctx, err)
				}
				return printLease(app, "renewed", l, shared.Share{})
			})
		},
	}
	c.addFlags(cmd.Flags())
	cmd.Flags().DurationVar(&ttl, "ttl", defaultLeaseTTL, "how long the lease lasts from now unless it is renewed again")
	cmd.Flags().StringToStringVar(&metadata, "metadata", nil, "`key=value` that replaces all metadata of the lease, repeatable (default: unchanged)")
	cmd.Flags().BoolVar(&empty, "clear-metadata", false, "delete the lease's metadata")
	cmd.MarkFlagsMutuallyExclusive("metadata", "clear-metadata")
	return cmd
}

func newAdopt(app *program.App) *cobra.Command {
	var (
		server lockserver.ClientFlags
		c      claimFlags
		export bool
	)
	cmd := &cobra.Command{
		Use:   "adopt NAME",
		Short: "Take over a lease that was acquired before a restart",
		Long: `Take over a lease by its owner and id, and print it with its fencing token. This does not
renew the lease: use "lease renew". The process that had the lease before must have ended.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := LockName(args)
			if err != nil {
				return err
			}
			id := cmp.Or(c.id, os.Getenv("PGLATCH_LEASE_ID"))
			if id == "" {
				return program.UsageError("give --lease-id, as acquire printed it")
			}
			client, err := server.Client(app, 0)
			if err != nil {
				return err
			}
			defer client.Close()
			held, err := client.Adopt(cmd.Context(), name, ownerName(c.owner), id)
			if err != nil {
				return lockserver.Error(cmd.Context(), err)
			}
			return printHeld(app, "adopted", held, export)
		},
	}
	server.AddFlags(cmd.Flags())
	c.addIDFlags(cmd.Flags())
	cmd.Flags().BoolVar(&export, "export", false, "print shell commands that set what renew and release read")
	return cmd
}

func newRelease(app *program.App) *cobra.Command {
	var c claimCommand
	cmd := &cobra.Command{
		Use:   "release NAME",
		Short: "Release a lease; repeating it is not an error",
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.run(cmd, app, args, func(ctx context.Context, client *leasehttp.Client, claim lease.Claim) error {
				return lockserver.Error(ctx, client.Release(ctx, claim))
			})
		},
	}
	c.addFlags(cmd.Flags())
	return cmd
}
