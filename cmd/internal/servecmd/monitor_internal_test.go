package servecmd

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestALabelIsNoPartOfAConnectionString(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"postgres://db-1/shop":                 {"", "postgres://db-1/shop"},
		"postgres://db-1/shop?sslmode=disable": {"", "postgres://db-1/shop?sslmode=disable"},
		"host=db-1 dbname=shop":                {"", "host=db-1 dbname=shop"},
		"prod=postgres://db-1/shop":            {"prod", "postgres://db-1/shop"},
		"prod=host=db-1 dbname=shop":           {"prod", "host=db-1 dbname=shop"},
		"":                                     {"", ""},
	} {
		label, url := labelled(text)
		assert.Equal(t, want, [2]string{label, url}, text)
	}
}
