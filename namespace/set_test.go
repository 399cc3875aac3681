package namespace_test

import (
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/namespace"
)

var orders = namespace.Must(2, "order")

func newSet(tb testing.TB) *namespace.Set {
	tb.Helper()
	s, err := namespace.NewSet(agents, orders)
	require.NoError(tb, err)
	return s
}

func TestASetRefusesTwoNamespacesOfOneNumberOrName(t *testing.T) {
	t.Parallel()
	for what, other := range map[string]namespace.Namespace{
		"number":           namespace.Must(1, "order"),
		"name":             namespace.Must(2, "agent"),
		"number, all same": agents,
	} {
		s, err := namespace.NewSet(agents, namespace.Must(9, "between"), other)
		require.ErrorIs(t, err, namespace.ErrClash, what)
		assert.Nil(t, s)
		var clash *namespace.ClashError
		require.ErrorAs(t, err, &clash)
		assert.Equal(t, agents, clash.A)
		assert.Equal(t, other, clash.B)
		require.ErrorContains(t, err, agents.String()+" and "+other.String()+" have one "+what[:4])
	}
}

func TestASetRefusesTheZeroNamespace(t *testing.T) {
	t.Parallel()
	_, err := namespace.NewSet(agents, namespace.Namespace{})
	require.ErrorIs(t, err, namespace.ErrInvalidNamespace)
	require.NotErrorIs(t, err, namespace.ErrClash)
	require.ErrorContains(t, err, "namespace.New")
}

func TestASetFindsNamespacesByNameAndNumber(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	assert.Equal(t, []namespace.Namespace{agents, orders}, slices.Collect(s.All()))
	n, ok := s.Named("order")
	assert.True(t, ok)
	assert.Equal(t, orders, n)
	n, ok = s.Numbered(1)
	assert.True(t, ok)
	assert.Equal(t, agents, n)
	_, ok = s.Named("Order")
	assert.False(t, ok)
	_, ok = s.Numbered(3)
	assert.False(t, ok)
	_, ok = s.Numbered(0)
	assert.False(t, ok)
}

func TestASetDoesNotChangeWithTheCallersSlice(t *testing.T) {
	t.Parallel()
	given := []namespace.Namespace{agents, orders}
	s, err := namespace.NewSet(given...)
	require.NoError(t, err)
	given[0] = namespace.Must(5, "other")
	assert.Equal(t, agents, slices.Collect(s.All())[0])
}

func TestANilSetKnowsRawKeysOnly(t *testing.T) {
	t.Parallel()
	var s *namespace.Set
	assert.Empty(t, slices.Collect(s.All()))
	_, _, ok := s.Describe(agents.ID(42).Tag())
	assert.False(t, ok)
	k, err := s.Parse("1:42")
	require.NoError(t, err)
	assert.Equal(t, agents.ID(42).Tag(), k.Tag())
	_, err = s.Parse("agent/42")
	require.ErrorIs(t, err, namespace.ErrUnknownNamespace)
}

func TestDescribeReadsTheNamespaceAndTheIntegerFromATag(t *testing.T) {
	t.Parallel()
	text, err := orders.Text("acme/eu")
	require.NoError(t, err)
	slot, err := agents.ID(42).Companion("slot0")
	require.NoError(t, err)
	s := newSet(t)
	for _, c := range []struct {
		tag    namespace.Tag
		want   namespace.Namespace
		entity string
	}{
		{agents.ID(42).Tag(), agents, "42"},
		{agents.ID(-1).Tag(), agents, "-1"},
		{orders.ID(-1 << 31).Tag(), orders, "-2147483648"},
		{agents.ID(1 << 31).Tag(), agents, ""},
		{agents.UUID(uuid.UUID{1}).Tag(), agents, ""},
		{text.Tag(), orders, ""},
		{slot.Tag(), agents, ""},
		{namespace.Pair(2, 7).Tag(), orders, "7"},
	} {
		n, entity, ok := s.Describe(c.tag)
		assert.True(t, ok, "%v", c.tag)
		assert.Equal(t, c.want, n)
		assert.Equal(t, c.entity, entity)
	}
}

func TestDescribeLeavesForeignTagsWithoutAName(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	for _, tag := range []namespace.Tag{
		{},
		{ClassID: 1, ObjID: 42},
		{ClassID: 1, ObjID: 42, ObjSubID: 3},
		namespace.Pair(0, 42).Tag(),
		namespace.Pair(3, 42).Tag(),
		namespace.Pair(-1, 42).Tag(),
		namespace.Pair(1<<16|1, 42).Tag(),
		namespace.SingleRaw(12345).Tag(),
		namespace.SingleRaw(3 << 48).Tag(),
		namespace.SingleRaw(-1).Tag(),
		namespace.SingleRaw(-1<<63 | 1<<48).Tag(), // the sign bit is leader election's
	} {
		n, entity, ok := s.Describe(tag)
		assert.False(t, ok, "%v", tag)
		assert.Zero(t, n)
		assert.Empty(t, entity)
	}
}

func TestParseReadsEveryForm(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	mustText := func(n namespace.Namespace, entity string) namespace.Key {
		k, err := n.Text(entity)
		require.NoError(t, err)
		return k
	}
	for text, want := range map[string]namespace.Key{
		"agent/42":              agents.ID(42),
		"agent/-1":              agents.ID(-1),
		"agent/4294967296":      agents.ID(1 << 32),
		"agent/007":             mustText(agents, "007"),
		"order/acme/eu":         mustText(orders, "acme/eu"),
		"order//":               mustText(orders, "/"),
		"order/1:2":             mustText(orders, "1:2"),
		"1:100":                 namespace.Pair(1, 100),
		"-2147483648:-1":        namespace.Pair(-1<<31, -1),
		"@12345":                namespace.SingleRaw(12345),
		"@-9223372036854775808": namespace.SingleRaw(-1 << 63),
	} {
		k, err := s.Parse(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, k, text)
	}
}

func TestParseRefusesOtherText(t *testing.T) {
	t.Parallel()
	s := newSet(t)
	for text, want := range map[string]error{
		"agents/42":             namespace.ErrUnknownNamespace,
		"Agent/42":              namespace.ErrUnknownNamespace,
		"agent/":                namespace.ErrInvalidKey,
		"agent/\x00":            namespace.ErrInvalidKey,
		"agent/\xff":            namespace.ErrInvalidKey,
		"agent":                 namespace.ErrInvalidKey,
		"":                      namespace.ErrInvalidKey,
		"/42":                   namespace.ErrInvalidKey,
		"1/42":                  namespace.ErrInvalidKey,
		"42":                    namespace.ErrInvalidKey,
		"invalid":               namespace.ErrInvalidKey,
		"1:":                    namespace.ErrInvalidKey,
		":1":                    namespace.ErrInvalidKey,
		"1:2:3":                 namespace.ErrInvalidKey,
		"1:2147483648":          namespace.ErrInvalidKey,
		"-2147483649:1":         namespace.ErrInvalidKey,
		"01:2":                  namespace.ErrInvalidKey,
		"1: 2":                  namespace.ErrInvalidKey,
		"@":                     namespace.ErrInvalidKey,
		"@+1":                   namespace.ErrInvalidKey,
		"@-0":                   namespace.ErrInvalidKey,
		"@0x1":                  namespace.ErrInvalidKey,
		"@9223372036854775808":  namespace.ErrInvalidKey,
		"@-9223372036854775809": namespace.ErrInvalidKey,
	} {
		k, err := s.Parse(text)
		require.ErrorIs(t, err, want, "%q", text)
		assert.False(t, k.Valid())
		var e *namespace.Error
		require.ErrorAs(t, err, &e)
		assert.NotEmpty(t, e.Reason)
	}
}

func FuzzParseKey(f *testing.F) {
	for _, text := range []string{"agent/42", "order/acme/eu", "agent/6BA7B810-9DAD-11D1-80B4-00C04FD430C8", "1:100", "-1:0", "@5", "@-1", "x/1", "", "@", ":", "/"} {
		f.Add(text)
	}
	s := newSet(f)
	f.Fuzz(func(t *testing.T, text string) {
		k, err := s.Parse(text)
		if err != nil {
			require.False(t, k.Valid())
			var e *namespace.Error
			require.ErrorAs(t, err, &e)
			return
		}
		again, err := s.Parse(k.String())
		require.NoError(t, err)
		require.Equal(t, k, again)
	})
}
