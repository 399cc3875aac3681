package namespace_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/frozen"
	"github.com/pglatch/pglatch/namespace"
)

//go:embed testdata/vectors.json
var vectorsJSON []byte

// A vector is one frozen derivation; testdata/vectors.py computes them in Python.
type vector struct {
	Number   int
	Name     string
	Entity   string
	Shown    string // the entity as Key.Entity gives it
	Role     string // "", "slot<i>" or "turnstile"
	ClassID  uint32
	ObjID    uint32
	ObjSubID uint16
}

func vectors(tb testing.TB) []vector {
	tb.Helper()
	var vs []vector
	require.NoError(tb, json.Unmarshal(vectorsJSON, &vs))
	require.NotEmpty(tb, vs)
	return vs
}

func (v vector) String() string {
	entity := v.Entity
	if len(entity) > 40 {
		entity = entity[:40] + "…"
	}
	return fmt.Sprintf("%s=%d %q %s", v.Name, v.Number, entity, v.Role)
}

func (v vector) tag() namespace.Tag {
	return namespace.Tag{ClassID: v.ClassID, ObjID: v.ObjID, ObjSubID: v.ObjSubID}
}

// key is the vector's key through Text, and its companion when it has a role.
func (v vector) key(tb testing.TB) namespace.Key {
	tb.Helper()
	k, err := namespace.Must(v.Number, v.Name).Text(v.Entity)
	require.NoError(tb, err)
	require.Equal(tb, v.Shown, k.Entity())
	if v.Role != "" {
		k, err = k.Companion(v.Role)
		require.NoError(tb, err)
	}
	return k
}

func TestKeysAreThoseOfTheFrozenVectors(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		assert.Equal(t, v.tag(), v.key(t).Tag(), "%v: %s", v, frozen.Message)
	}
}

func TestIntegersAndUUIDsGiveTheKeysOfTheirText(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		n := namespace.Must(v.Number, v.Name)
		if v.Role != "" {
			continue
		}
		if id, err := strconv.ParseInt(v.Entity, 10, 64); err == nil && strconv.FormatInt(id, 10) == v.Entity {
			assert.Equal(t, v.tag(), n.ID(id).Tag(), "%v", v)
		}
		if id, err := uuid.Parse(v.Entity); err == nil && len(v.Entity) == 36 {
			assert.Equal(t, v.tag(), n.UUID(id).Tag(), "%v", v)
		}
	}
}

func TestOnlyEqualEntitiesShareAKey(t *testing.T) {
	t.Parallel()
	seen := map[namespace.Tag]vector{}
	for _, v := range vectors(t) {
		same := func(o vector) bool { return o.Number == v.Number && o.Shown == v.Shown && o.Role == v.Role }
		if o, ok := seen[v.tag()]; ok {
			// A pair names no text: agent=1 and agents=1 share (1, 42), and NewSet refuses the two.
			assert.True(t, same(o), "%v and %v", o, v)
		}
		seen[v.tag()] = v
	}
}
