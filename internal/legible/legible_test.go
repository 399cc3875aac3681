package legible_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/legible"
)

func TestWhatOthersChoseStaysWithinItsBounds(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"report":                  "report",
		"a\x1b[31m\nb":            "a?[31m?b",
		"a\u202egpj":              "a?gpj",
		"a\u2066b\u2069c\u2068":   "a?bc",
		"שלום":                    "\u2068שלום\u2069",
		"":                        "",
		strings.Repeat("x", 20):   strings.Repeat("x", 20),
		strings.Repeat("x", 21):   strings.Repeat("x", 19) + "…",
		strings.Repeat("ä", 3000): strings.Repeat("ä", 19) + "…",
	} {
		assert.Equal(t, want, legible.Quote(in, 20), "%q", in)
	}
	assert.Equal(t, "שלום", legible.Line(legible.Quote("שלום", 20)), "on a terminal")
}

func TestThousandsAreSeparated(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 20_001: "20,001", 1_234_567: "1,234,567", -999: "-999", -1234: "-1,234"} {
		assert.Equal(t, want, legible.Number(n))
	}
}
