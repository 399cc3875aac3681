package driver_test

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/driver"
)

func TestTermsCompareAsTheirNumbersDo(t *testing.T) {
	t.Parallel()
	ordered := []driver.Term{
		{}, {N: 1}, {N: 2}, {N: driver.MaxN}, {Era: 1}, {Era: 1, N: 7}, {Era: 2, N: 1}, {Era: driver.MaxEra, N: driver.MaxN},
	}
	for i, a := range ordered {
		for j, b := range ordered {
			assert.Equal(t, cmp.Compare(i, j), a.Compare(b), "%v and %v", a, b)
			assert.Equal(t, a.Compare(b), cmp.Compare(a.Uint64(), b.Uint64()), "%v and %v", a, b)
			assert.GreaterOrEqual(t, int64(a.Uint64()), int64(0))
		}
	}
}

func TestOnlyTheNextTermOfTheSameEraFollows(t *testing.T) {
	t.Parallel()
	a := driver.Term{Era: 3, N: 7}
	assert.True(t, driver.Term{Era: 3, N: 8}.Follows(a))
	assert.False(t, driver.Term{Era: 3, N: 9}.Follows(a))
	assert.False(t, a.Follows(a))
	assert.False(t, driver.Term{Era: 4, N: 8}.Follows(a), "who knows what the other era forgot")
}

func TestATermIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	for text, term := range map[string]driver.Term{
		"none": {}, "1.42": {Era: 1, N: 42}, "0.1": {N: 1}, "32767.281474976710655": {Era: driver.MaxEra, N: driver.MaxN},
	} {
		parsed, err := driver.ParseTerm(text)
		require.NoError(t, err)
		assert.Equal(t, term, parsed)
		assert.Equal(t, text, term.String())
	}
	for _, text := range []string{"", "1", "1.", ".1", "1.2.3", "01.2", "1.02", "+1.2", "-1.2", "0.0", "32768.1", "1.281474976710656", "1.x", " 1.2", "None"} {
		_, err := driver.ParseTerm(text)
		assert.ErrorContains(t, err, "is no term", "%q", text)
	}
}

func FuzzParseTerm(f *testing.F) {
	for _, seed := range []string{"none", "1.42", "0.0", "32768.1", "1.281474976710656", "..", "1e3.5"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		term, err := driver.ParseTerm(s)
		if err != nil {
			assert.True(t, term.IsZero())
			return
		}
		assert.Equal(t, s, term.String())
		assert.Equal(t, term, driver.TermOf(term.Uint64()))
	})
}

func FuzzTermOf(f *testing.F) {
	f.Add(uint64(0), uint64(1))
	f.Add(uint64(1)<<48, uint64(1)<<63-1)
	f.Fuzz(func(t *testing.T, a, b uint64) {
		a, b = a&(1<<63-1), b&(1<<63-1) // of a positive bigint
		s, u := driver.TermOf(a), driver.TermOf(b)
		assert.Equal(t, a, s.Uint64())
		assert.Equal(t, cmp.Compare(a, b), s.Compare(u))
		parsed, err := driver.ParseTerm(s.String())
		require.NoError(t, err)
		assert.Equal(t, s, parsed)
	})
}
