package leased

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease"
)

func TestNamesOfShardsCanBeReadInThoseOfLeases(t *testing.T) {
	t.Parallel()
	for text, escaped := range map[string]string{
		"acme": "acme", "tenant:42": "tenant:42", "Zoë & Söhne": "Zoë & Söhne", "eu/acme": "eu%2Facme", "100%": "100%25",
		".": "%2E", "..": "%2E%2E", "a.b": "a.b", "job::slot::0002": "job%3A:slot%3A:0002", "a\nb": "a%0Ab", "\xff": "%FF", "�": "�", "": "",
	} {
		assert.Equal(t, escaped, escape(text))
	}
}

func FuzzEveryTextIsAPartOfTheNameOfALease(f *testing.F) {
	for _, text := range []string{"acme", "..", "::::", "%2E", "\x00\xff�", "a/../b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name := Config{Name: "tenants"}.shard(text)
		back, ok := unescape(strings.TrimPrefix(name, "tenants"+inShards))
		require.True(t, ok)
		require.Equal(t, text, back)
		require.NotContains(t, name, "::")
		if len(name) <= lease.MaxName {
			require.NoError(t, lease.ValidateName(name))
		}
	})
}
