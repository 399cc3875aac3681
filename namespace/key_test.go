package namespace_test

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/frozen"
	"github.com/pglatch/pglatch/namespace"
)

func TestSingleRefusesTheKeysOfLeaderElection(t *testing.T) {
	t.Parallel()
	for _, k := range []int64{-1, math.MinInt64, math.MinInt32} {
		key, err := namespace.Single(k)
		require.ErrorIs(t, err, namespace.ErrInvalidKey)
		require.ErrorContains(t, err, "SingleRaw")
		assert.False(t, key.Valid())
		got, ok := namespace.SingleRaw(k).Tag().Single()
		assert.True(t, ok)
		assert.Equal(t, k, got)
	}
	for _, k := range []int64{0, 1, math.MaxInt64} {
		key, err := namespace.Single(k)
		require.NoError(t, err)
		assert.Equal(t, namespace.SingleRaw(k), key)
	}
}

func TestThePairAndTheSingleFormAreDifferentLocks(t *testing.T) {
	t.Parallel()
	single, err := namespace.Single(1)
	require.NoError(t, err)
	assert.NotEqual(t, single.Tag(), namespace.Pair(0, 1).Tag())
	assert.Equal(t, agents.ID(42).Tag(), namespace.Pair(1, 42).Tag(), "a raw pair is the same lock")
}

func TestTheZeroKeyIsInvalid(t *testing.T) {
	t.Parallel()
	var k namespace.Key
	assert.False(t, k.Valid())
	assert.Equal(t, "invalid", k.String())
	assert.Zero(t, k.Namespace())
	assert.Empty(t, k.Entity())
}

func TestKeysPrintTheirTextForm(t *testing.T) {
	t.Parallel()
	text, err := agents.Text("acme/eu")
	require.NoError(t, err)
	slot, err := agents.ID(42).Companion("slot7")
	require.NoError(t, err)
	turnstile, err := agents.ID(42).Companion("turnstile")
	require.NoError(t, err)
	for want, k := range map[string]namespace.Key{
		"agent/42":              agents.ID(42),
		"agent/2147483648":      agents.ID(1 << 31),
		"agent/acme/eu":         text,
		"1:100":                 namespace.Pair(1, 100),
		"-1:-2147483648":        namespace.Pair(-1, math.MinInt32),
		"@12345":                namespace.SingleRaw(12345),
		"@-9223372036854775808": namespace.SingleRaw(math.MinInt64),
		"agent/42#slot7":        slot,
		"agent/42#turnstile":    turnstile,
	} {
		assert.Equal(t, want, k.String())
	}
}

func TestCompanionsExistOnlyInANamespaceAndWithARole(t *testing.T) {
	t.Parallel()
	for _, k := range []namespace.Key{{}, namespace.Pair(1, 42), namespace.SingleRaw(7)} {
		_, err := k.Companion("slot0")
		require.ErrorIs(t, err, namespace.ErrInvalidKey)
		require.ErrorContains(t, err, "raw key")
	}
	_, err := agents.ID(42).Companion("")
	require.ErrorIs(t, err, namespace.ErrInvalidKey)
}

func TestAllCompanionsOfAnEntityAreDifferentLocks(t *testing.T) {
	t.Parallel()
	k := agents.ID(42)
	seen := map[namespace.Tag]bool{k.Tag(): true}
	turnstile, err := k.Companion("turnstile")
	require.NoError(t, err)
	seen[turnstile.Tag()] = true
	for i := range 1000 {
		slot, err := k.Companion("slot" + strconv.Itoa(i))
		require.NoError(t, err)
		assert.Equal(t, agents, slot.Namespace())
		seen[slot.Tag()] = true
	}
	assert.Len(t, seen, 1000+2)
}

func FuzzTagRoundTrip(f *testing.F) {
	for _, half := range []uint32{0, 1, 1<<31 - 1, 1 << 31, 1<<31 + 1, math.MaxUint32} {
		for form := range uint16(4) {
			f.Add(half, ^half, form)
			f.Add(half, half, form)
		}
	}
	f.Add(uint32(0), uint32(0), uint16(math.MaxUint16))
	f.Fuzz(func(t *testing.T, classID, objID uint32, objSubID uint16) {
		tag := namespace.Tag{ClassID: classID, ObjID: objID, ObjSubID: objSubID}
		k1, k2, pair := tag.Pair()
		k, single := tag.Single()
		require.Equal(t, objSubID == namespace.PairForm, pair)
		require.Equal(t, objSubID == namespace.SingleForm, single)
		require.Equal(t, pair || single, tag.Valid())
		switch {
		case pair:
			require.Equal(t, tag, namespace.Pair(k1, k2).Tag())
		case single:
			require.Equal(t, tag, namespace.SingleRaw(k).Tag())
		default:
			require.Equal(t, "invalid", tag.String())
			return
		}
		var none *namespace.Set
		parsed, err := none.Parse(tag.String())
		require.NoError(t, err)
		require.Equal(t, tag, parsed.Tag())
		text, err := tag.MarshalText()
		require.NoError(t, err)
		var read namespace.Tag
		require.NoError(t, read.UnmarshalText(text))
		require.Equal(t, tag, read)
	})
}

func TestTagsOrderByFormThenUnsignedHalves(t *testing.T) {
	t.Parallel()
	ordered := []namespace.Tag{
		namespace.SingleRaw(0).Tag(),
		namespace.SingleRaw(math.MaxUint32).Tag(),
		namespace.SingleRaw(1 << 32).Tag(),
		namespace.SingleRaw(math.MaxInt64).Tag(),
		namespace.SingleRaw(math.MinInt64).Tag(),
		namespace.SingleRaw(-1).Tag(),
		namespace.Pair(0, 0).Tag(),
		namespace.Pair(0, -1).Tag(),
		namespace.Pair(1, 0).Tag(),
		namespace.Pair(-1, 0).Tag(),
		namespace.Pair(-1, -1).Tag(),
	}
	shuffled := slices.Clone(ordered)
	slices.Reverse(shuffled)
	slices.SortFunc(shuffled, namespace.Tag.Compare)
	assert.Equal(t, ordered, shuffled)
	assert.Zero(t, ordered[3].Compare(ordered[3]))
}

func TestATagThatIsNoneIsNotReadAndChangesNothing(t *testing.T) {
	t.Parallel()
	tag := namespace.Pair(1, 2).Tag()
	for _, text := range []string{"", "invalid", "1:", "1:2:3", "@", "@1x", "01:2"} {
		require.ErrorIs(t, tag.UnmarshalText([]byte(text)), namespace.ErrInvalidKey, text)
		require.Equal(t, namespace.Pair(1, 2).Tag(), tag)
	}
	require.ErrorIs(t, tag.UnmarshalText([]byte("order/42")), namespace.ErrUnknownNamespace)
	require.Equal(t, namespace.Pair(1, 2).Tag(), tag)
}

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
