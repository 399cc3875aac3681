package identity

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAProcessIsNamedAfterItsHost(t *testing.T) {
	t.Parallel()
	assert.Equal(t, host()+"/"+strconv.Itoa(os.Getpid()), Process())
	assert.Regexp(t, "^"+host()+"-[a-z2-7]{8}$", Random())
	assert.NotEqual(t, Random(), Random())
}

func TestAHostNameThatNoStoreTakesIsReplaced(t *testing.T) {
	t.Parallel()
	assert.True(t, usable("web-3.example"))
	assert.True(t, usable(strings.Repeat("w", maxHost)))
	for _, name := range []string{"", strings.Repeat("w", maxHost+1), "web\x00", "web\xff"} {
		assert.False(t, usable(name), "%q", name)
	}
}
