package leased_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/leased"
)

func TestAConfigThatIsWrongIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config leased.Config
		field  string
		says   string
	}{
		{leased.Config{}, "Name", "leader: Name is empty: give one"},
		{leased.Config{Name: "a/../b"}, "Name", `use no segments "." and ".."`},
		{leased.Config{Name: strings.Repeat("x", 513)}, "Name", "use at most 512 bytes"},
		{leased.Config{Name: name, PollInterval: -1}, "PollInterval", "PollInterval is -1ns: use 20ms at least"},
		{leased.Config{Name: name, PollInterval: time.Millisecond}, "PollInterval", "or 0 for the default of 250ms"},
	} {
		_, err := leased.New(newFaulty(), c.config)
		var wrong *leader.ConfigError
		require.ErrorAs(t, err, &wrong)
		assert.Equal(t, c.field, wrong.Field)
		assert.ErrorContains(t, err, c.says)
	}
	_, err := leased.New(nil, leased.Config{Name: name})
	require.ErrorContains(t, err, "the store is nil")
}
