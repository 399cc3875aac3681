package check_test

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/trace"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/leasetest"
	"github.com/pglatch/pglatch/spec/check"
)

// The control of recorded faults: each loss has its cause among them.
func TestARunOfLocksWithoutItsFaultsIsRefused(t *testing.T) {
	t.Parallel()
	c, run := recorded(t, "locks")
	without := slices.DeleteFunc(slices.Clone(run), func(e trace.Event) bool { return e.Kind == trace.Fault })
	require.ErrorContains(t, c(without), "no fault hit its process")
}

// calls returns the events of calls, one nanosecond apart. Each is of another Locker: r and s are readers, and x, y and z use a
// semaphore with two slots.
func calls(kinds ...string) (run []trace.Event) {
	for i, kind := range kinds {
		process, kind := kind[:1], trace.Kind(kind[2:])
		e := trace.Event{Process: process, Boot: int64(i + 1), Kind: kind, Key: "agent/1", Who: "0"}
		if kind == trace.Fault {
			e = trace.Event{Process: "test", Boot: e.Boot, Kind: kind, Who: process, To: trace.Begins}
		}
		switch process {
		case "r", "s":
			e.Slots = trace.AnyNumber
		case "x", "y", "z":
			e.Slots, e.Key = 2, "semaphore/1"
		}
		run = append(run, e)
	}
	return run
}

func TestRunsOfLocksThatLookAlikeAreToldApart(t *testing.T) {
	t.Parallel()
	two := []string{"a ask", "a acquired", "b ask", "b acquired"}
	for name, c := range map[string]struct {
		run  []string
		says string // "" = the run is legal
	}{
		"one after the other":           {[]string{"a ask", "b ask", "a acquired", "a release", "b acquired", "a released", "b release", "b released"}, ""},
		"a loss that nobody noticed":    {append([]string{"a fault"}, append(two, "b release", "b released", "a lost")...), ""},
		"a loss that nobody reported":   {append([]string{"a fault"}, two...), ""},
		"two at once":                   {two, "is beside"},
		"two at once, and both release": {append(slices.Clone(two), "a release", "a released", "b release", "b released"), "is beside"},
		"a loss without a fault":        {append(slices.Clone(two), "a lost"), "no fault"},
		"a fault of another":            {append([]string{"b fault"}, append(two, "a lost")...), "no fault"},
		"a release that had lost":       {append([]string{"a fault"}, append(two, "a release", "a released")...), "is beside"},
		"a grant that nobody asked for": {[]string{"a acquired"}, "not asked"},
		"readers at once":               {[]string{"r ask", "s ask", "r acquired", "s acquired"}, ""},
		"a writer beside a reader":      {[]string{"r ask", "r acquired", "a ask", "a acquired"}, "is beside"},
		"a reader beside a writer":      {[]string{"a ask", "a acquired", "r ask", "r acquired"}, "is beside"},
		"two slots":                     {[]string{"x ask", "x acquired", "y ask", "y acquired"}, ""},
		"three of two slots":            {[]string{"x ask", "x acquired", "y ask", "y acquired", "z ask", "z acquired"}, "is beside"},
		"it stops and holds":            {[]string{"a ask", "a acquired", "a stopped"}, "has not reported"},
	} {
		err := check.Locks(calls(c.run...))
		if c.says == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorIs(t, err, check.ErrRefused, name)
		require.ErrorContains(t, err, c.says, name)
	}
}

var errLost = errors.New("connection reset")

// A lossy store loses each fifth answer. If broken, it also acknowledges some releases that it does not carry out.
type lossy struct {
	lease.Store
	calls  atomic.Int64
	broken bool
}

func (l *lossy) Acquire(ctx context.Context, r lease.AcquireRequest) (lease.Lease, error) {
	got, err := l.Store.Acquire(ctx, r)
	if l.calls.Add(1)%5 == 0 {
		return lease.Lease{}, errLost
	}
	return got, err
}

func (l *lossy) Release(ctx context.Context, c lease.Claim) error {
	if l.broken && l.calls.Add(1)%2 == 0 {
		return nil
	}
	return l.Store.Release(ctx, c)
}

// contend returns the run of clients that compete for leases in a store.
func contend(t *testing.T, s lease.Store) []trace.Event {
	t.Helper()
	dir := t.TempDir()
	w, err := trace.Open(dir, "clients")
	require.NoError(t, err)
	leasetest.Contention{Clients: 6, Names: 2, Operations: 60}.Run(t.Context(), func(int) lease.Store { return w.Store(s) })
	require.NoError(t, w.Close())
	run, err := trace.Read(dir)
	require.NoError(t, err)
	require.NotEmpty(t, run, filepath.Base(dir))
	return run
}

func TestTheRulesOfLeasesAcceptAStoreThatUsesThem(t *testing.T) {
	t.Parallel()
	require.NoError(t, check.Leases(contend(t, leasetest.NewStore())))
	require.NoError(t, check.Leases(contend(t, &lossy{Store: leasetest.NewStore()})))
}

// The control.
func TestTheRulesOfLeasesRefuseAStoreThatForgetsReleases(t *testing.T) {
	t.Parallel()
	require.ErrorIs(t, check.Leases(contend(t, &lossy{Store: leasetest.NewStore(), broken: true})), check.ErrRefused)
}

// A server that dies leaves all calls that it had with an unknown outcome. Their orders are too many to try each.
func TestManyCallsOfUnknownOutcomeAreChecked(t *testing.T) {
	t.Parallel()
	var run []trace.Event
	add := func(asked, answered time.Duration, who string, c trace.Call) {
		run = append(run, trace.Event{Kind: trace.LeaseAcquire, Key: "job", Who: who, Asked: int64(asked), Boot: int64(answered), Lease: &c})
	}
	for i := range 9 {
		add(0, time.Second, fmt.Sprint("client-", i), trace.Call{TTL: time.Second, Answer: trace.Unknown})
	}
	add(2*time.Second, 3*time.Second, "last", trace.Call{TTL: time.Second, Answer: trace.Held, Holder: "client-7"})
	require.NoError(t, check.Leases(run))
	add(4*time.Second, 5*time.Second, "last", trace.Call{TTL: time.Second, Answer: trace.Held, Holder: "nobody"})
	require.ErrorIs(t, check.Leases(run), check.ErrRefused)
}

// The linker compares no types.
func TestLinkedTypesAreThoseOfTheMachines(t *testing.T) {
	t.Parallel()
	for name, ours := range check.Linked {
		file, typeName, _ := strings.Cut(name, " ")
		of := reflect.TypeOf(ours)
		theirs := typeIn(t, file, typeName)
		if of.Kind() != reflect.Struct {
			assert.Equal(t, of.Kind().String(), types.ExprString(theirs), name)
			continue
		}
		var want, got []string
		for _, f := range theirs.(*ast.StructType).Fields.List {
			for _, n := range f.Names {
				want = append(want, n.Name+" "+types.ExprString(f.Type))
			}
			if len(f.Names) == 0 {
				want = append(want, "embeds "+types.ExprString(f.Type))
			}
		}
		for f := range of.Fields() {
			text := f.Name + " " + f.Type.String()
			if f.Anonymous {
				text = "embeds " + f.Type.String()
			}
			got = append(got, text)
		}
		// Package leader has its own names for these types.
		as := strings.NewReplacer("leader.State", "State", "check.", "", " uint8", " input")
		assert.Equal(t, want, words(as, got, typeName), name)
	}
}

// words translates our names of types. A row's to is a destination, and its input an input.
func words(as *strings.Replacer, fields []string, of string) (all []string) {
	for _, f := range fields {
		f = as.Replace(f)
		if of == "row" && strings.HasPrefix(f, "to ") {
			f = "to destination"
		}
		all = append(all, f)
	}
	return all
}

func TestLinkedActionsHaveTheirNumbers(t *testing.T) {
	t.Parallel()
	require.Greater(t, check.TableSize(), 20, "the machine is not linked")
	numbers := make(map[string]int)
	for _, decl := range parsed(t, "leader/machine.go").Decls {
		if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.CONST {
			for i, spec := range d.Specs {
				for _, n := range spec.(*ast.ValueSpec).Names {
					numbers[n.Name] = i
				}
			}
		}
	}
	for name, n := range check.Actions {
		assert.Equal(t, numbers[name], n, name)
	}
}

func parsed(t *testing.T, file string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", file), nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	return f
}

func typeIn(t *testing.T, file, name string) ast.Expr {
	t.Helper()
	for _, decl := range parsed(t, file).Decls {
		if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.TYPE {
			for _, spec := range d.Specs {
				if s := spec.(*ast.TypeSpec); s.Name.Name == name {
					return s.Type
				}
			}
		}
	}
	require.Fail(t, "no such type", "%s in %s", name, file)
	return nil
}
