// Command peer uses the library as a program of a user does. The tests of package compat build it against two versions
// of the library, so it uses only what the version in the file base has; with the build tag mailboxes, what the one in
// base.turns has.
//
//	peer ROLE ARGUMENT...
//
// It reads one command a line, and answers each with one line. The database is in DATABASE_URL.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pglatch/pglatch/namespace"
)

// entities are the keys of all roles. A text depends on the derivation of keys.
var entities = namespace.Must(7, "entity")

// A role answers a command: a verb, and its arguments. It adds what must end with the process to closing.
type role interface {
	answer(ctx context.Context, verb string, args []string) (string, error)
	close()
}

type newRole = func(ctx context.Context, dsn string, args []string) (role, error)

var roles = map[string]newRole{
	"mutex":  newMutex,
	"elect":  newCandidate,
	"shards": newShards,
	"once":   newTicks,
	"lease":  newLeases,
	"tables": newTables,
	"sqlite": newFile,
}

func main() {
	if err := run(context.Background(), os.Getenv("DATABASE_URL"), os.Args[1:]); err != nil {
		fmt.Println("failed:", strings.ReplaceAll(refusal(err), "\n", " "))
		os.Exit(1)
	}
}

func run(ctx context.Context, dsn string, args []string) error {
	maps.Copy(roles, later)
	if len(args) == 0 || roles[args[0]] == nil {
		return fmt.Errorf("usage: peer ROLE ARGUMENT...: %q", args)
	}
	r, err := roles[args[0]](ctx, dsn, args[1:])
	if err != nil {
		return err
	}
	defer r.close()
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		answer, err := r.answer(ctx, words[0], words[1:])
		if err != nil {
			answer = refusal(err)
		}
		fmt.Println(strings.ReplaceAll(answer, "\n", " "))
	}
	return nil
}

// refusal tells a typed refusal from other errors.
func refusal(err error) string {
	for _, r := range slices.Concat(refusals, laterRefusals) {
		if r(err) {
			return "refused: " + err.Error()
		}
	}
	return "error: " + err.Error()
}

// refusals are the conditions that a program reports if it cannot work with what another version left.
var refusals = []func(error) bool{isTableError, isNotReady, isForeign}

func unknown(verb string) error { return fmt.Errorf("unknown command %q", verb) }

func sorted(names []string) string {
	slices.Sort(names)
	return strings.Join(names, ",")
}

func connect(ctx context.Context, dsn string) (*pgxpool.Pool, error) { return pgxpool.New(ctx, dsn) }

func is(targets ...error) func(error) bool {
	return func(err error) bool {
		return slices.ContainsFunc(targets, func(target error) bool { return errors.Is(err, target) })
	}
}
