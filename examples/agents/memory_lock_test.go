package agents_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// memoryLocks lists the types of the program that have a lock in memory; "" stands
// for a lock outside of a type.
func memoryLocks(t *testing.T) (types []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		var owner string
		find := func(n ast.Node) bool {
			s, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			x, ok := s.X.(*ast.Ident)
			if ok && x.Name == "sync" && s.Sel.Name != "WaitGroup" {
				types = append(types, owner)
			}
			return true
		}
		for _, d := range file.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.TYPE {
				owner = ""
				ast.Inspect(d, find)
				continue
			}
			for _, s := range g.Specs {
				owner = s.(*ast.TypeSpec).Name.Name
				ast.Inspect(s, find)
			}
		}
	}
	return types
}

// The locks in memory that guarded an agent's state (progress capture, reconciling, hand-off)
// are gone. Those for state that lives in one process remain, and work while the agent's lock
// is held.
func TestScenario_ExistingInMemoryLocksRetained(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"Broadcaster", "InferenceCache", "RateLimiter", "SessionRegistry", "TokenStore"}, memoryLocks(t))

	a := start(t, agents.Config{DSN: pgtest.DSN(t)})
	x := a.call("session-start", agents.Hook{SessionID: "s"})
	defer a.hold(x.AgentID)()

	limiter := agents.NewRateLimiter(10, time.Hour)
	var allowed atomic.Int32
	var received atomic.Int32
	var tokens agents.TokenStore
	sessions, cache := agents.NewSessionRegistry(), agents.NewInferenceCache()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			events, leave := a.Broadcaster().Subscribe()
			defer leave()
			if limiter.Allow() {
				allowed.Add(1)
			}
			sessions.Add("s", x.AgentID)
			if id, ok := sessions.Find("s"); !ok || id != x.AgentID {
				t.Error("a session is forgotten")
			}
			if err := tokens.Replace([]string{"0123456789abcdef"}); err != nil || tokens.Empty() {
				t.Error("a token is forgotten")
			}
			cache.Add("text", "summary")
			if summary, ok := cache.Find("text"); !ok || summary != "summary" {
				t.Error("a summary is forgotten")
			}
			a.Broadcaster().Publish(agents.Event{AgentID: x.AgentID})
			if e := <-events; e.AgentID == x.AgentID {
				received.Add(1)
			}
		})
	}
	all.Wait()
	assert.EqualValues(t, 10, allowed.Load())
	assert.EqualValues(t, 50, received.Load())
	assert.Zero(t, a.Broadcaster().Clients())
	assert.Equal(t, 1, a.Locker().Stats().Held)
}
