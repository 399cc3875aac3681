package legible_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/legible"
)

func TestThousandsAreSeparated(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{0: "0", 999: "999", 1000: "1,000", 20_001: "20,001", 1_234_567: "1,234,567", -999: "-999", -1234: "-1,234"} {
		assert.Equal(t, want, legible.Number(n))
	}
}
