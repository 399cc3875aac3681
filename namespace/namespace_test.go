package namespace_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/pglatch/pglatch/namespace"
)

var agents = namespace.Must(1, "agent")

func TestNewRefusesNumbersAndNamesThatCannotBeANamespace(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		number int
		name   string
		reason string
	}{
		{0, "agent", "1 to 32767"},
		{-1, "agent", "1 to 32767"},
		{32768, "agent", "1 to 32767"},
		{1, "", "at most 63 bytes"},
		{1, strings.Repeat("n", 64), "at most 63 bytes"},
		{1, "1agent", "begins with an ASCII letter"},
		{1, "-agent", "begins with an ASCII letter"},
		{1, "ag ent", "begins with an ASCII letter"},
		{1, "ag/ent", "begins with an ASCII letter"},
		{1, "agént", "begins with an ASCII letter"},
		{1, "ag\x00ent", "begins with an ASCII letter"},
		{1, "@agent", "begins with an ASCII letter"},
		{1, "ag[ent", "begins with an ASCII letter"},
		{1, "[agent", "begins with an ASCII letter"},
	} {
		n, err := namespace.New(c.number, c.name)
		require.ErrorIs(t, err, namespace.ErrInvalidNamespace, "%d %q", c.number, c.name)
		require.ErrorContains(t, err, c.reason)
		assert.Zero(t, n)
		assert.PanicsWithError(t, err.Error(), func() { namespace.Must(c.number, c.name) })
	}
}

func TestNewTakesTheWholeRange(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a", "Z", "agent", "a.b-c_d9", strings.Repeat("n", 63)} {
		for _, number := range []int{1, 32767} {
			n, err := namespace.New(number, name)
			require.NoError(t, err)
			assert.Equal(t, name, n.Name())
			assert.Equal(t, number, n.Number())
		}
	}
	assert.Equal(t, "agent=1", agents.String())
}

func TestTextRefusesEntitiesThatNothingElseCouldName(t *testing.T) {
	t.Parallel()
	for entity, reason := range map[string]string{
		"":          "empty",
		"a\x00b":    "NUL byte",
		"a\xffb":    "UTF-8",
		"\xed\xa0a": "UTF-8",
	} {
		k, err := agents.Text(entity)
		require.ErrorIs(t, err, namespace.ErrInvalidKey, "%q", entity)
		require.ErrorContains(t, err, reason)
		assert.False(t, k.Valid())
	}
}

func TestTheZeroNamespaceMakesNoKey(t *testing.T) {
	t.Parallel()
	var zero namespace.Namespace
	assert.False(t, zero.ID(42).Valid())
	assert.False(t, zero.ID(math.MaxInt64).Valid())
	assert.False(t, zero.UUID(uuid.UUID{}).Valid())
	for _, entity := range []string{"42", "x"} {
		k, err := zero.Text(entity)
		require.ErrorIs(t, err, namespace.ErrInvalidKey)
		require.ErrorContains(t, err, "namespace.New")
		assert.False(t, k.Valid())
	}
}

func TestEveryTextMakesTheKeyOfItsMeaning(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Int64().Draw(t, "id")
		u := uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid"))
		n := namespace.Must(rapid.IntRange(1, namespace.MaxNumber).Draw(t, "number"), "agent")

		assertSame(t, n, n.ID(id), rapid.Just(n.ID(id).Entity()).Draw(t, "decimal"))
		assertSame(t, n, n.UUID(u), u.String())
		assertSame(t, n, n.UUID(u), strings.ToUpper(u.String()))

		text := rapid.StringN(1, -1, 200).Filter(func(s string) bool { return !strings.ContainsRune(s, 0) }).Draw(t, "text")
		k, err := n.Text(text)
		require.NoError(t, err)
		assertInNamespace(t, n, k)
		assertSame(t, n, k, k.Entity())
	})
}

func assertSame(t require.TestingT, n namespace.Namespace, want namespace.Key, text string) {
	k, err := n.Text(text)
	require.NoError(t, err)
	require.Equal(t, want, k)
}

// assertInNamespace checks the layout: the number is readable and the sign bit free.
func assertInNamespace(t require.TestingT, n namespace.Namespace, k namespace.Key) {
	require.Equal(t, n, k.Namespace())
	if single, ok := k.Tag().Single(); ok {
		require.Equal(t, int64(n.Number()), single>>48)
		return
	}
	k1, _, ok := k.Tag().Pair()
	require.True(t, ok)
	require.Equal(t, int32(n.Number()), k1)
}

func FuzzText(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(v.Entity)
	}
	f.Add("")
	f.Add("\xff")
	f.Fuzz(func(t *testing.T, entity string) {
		k, err := agents.Text(entity)
		if err != nil {
			require.ErrorIs(t, err, namespace.ErrInvalidKey)
			require.False(t, k.Valid())
			return
		}
		assertInNamespace(t, agents, k)
		assertSame(t, agents, k, k.Entity())
	})
}
