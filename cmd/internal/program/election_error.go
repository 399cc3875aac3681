package program

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pglatch/pglatch/internal/pgsession"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/lease"
)

// flagNames maps fields of the library's Configs to flags of leader run, because a user of the
// command never wrote the fields.
var flagNames = strings.NewReplacer(
	"leader: ", "",
	"LeaseDuration", "--lease-duration",
	"RenewInterval", "--health-interval",
	"RenewTimeout", "--renew-timeout",
	"ReconnectGrace", "--reconnect-grace",
	"DrainTimeout", "--drain-timeout",
	"SettleDelay", "--settle-delay",
	"LossDrain", "loss drain",
	"Identity", "--id",
	"Table", "--table",
)

// ElectionError rewrites an election's error for the command: with its flags and with the matching
// exit code. Other errors stay unchanged.
func ElectionError(err error) error {
	if wrong, ok := errors.AsType[*leader.ConfigError](err); ok {
		return &ExitError{ExitUsage, errors.New(flagNames.Replace(wrong.Error()))}
	}
	if wrong, ok := errors.AsType[*lease.InvalidError](err); ok {
		return &ExitError{ExitUsage, wrong}
	}
	switch table, ok := errors.AsType[*postgres.TableError](err); {
	case !ok:
	case table.Missing:
		return &ExitError{ExitUnavailable, fmt.Errorf(
			`the table %s, which counts terms, does not exist: run "pglatch migrate", or use --create-table, or --no-terms to do without: %w`, table.Table, table.Cause)}
	case table.Outdated:
		return &ExitError{ExitUnavailable, err}
	}
	if errors.Is(err, leader.ErrPermanent) && pgsession.Refusal(err) != nil {
		return &ExitError{ExitRefused, err}
	}
	return err
}
