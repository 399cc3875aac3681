package namespace_test

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/namespace"
)

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
