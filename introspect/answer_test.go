package introspect_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/introspect"
)

func TestAProcessTellsItsAgeInSeconds(t *testing.T) {
	t.Parallel()
	p := introspect.Process{ID: "x", Service: "billing", Host: "web-1", PID: 7, Age: 1500*time.Millisecond + 1, Clock: time.Unix(1, 0).UTC()}
	text, err := json.Marshal(introspect.Answer{Process: p})
	require.NoError(t, err)
	assert.Contains(t, string(text), `"age":1.500000001`)
	var back introspect.Answer
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, p, back.Process)
	require.Error(t, json.Unmarshal([]byte(`{"age": 1e300}`), &p), "it is no time.Duration")
}
