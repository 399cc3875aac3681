package servecmd_test

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Viewers share what the live page renders. It must have nothing of a person, and nobody gets it without a token.
func TestTheSharedViewHasNothingOfAPerson(t *testing.T) {
	t.Parallel()
	c := newConsole(t)
	names := map[string]string{lookToken: "person-who-looks", endToken: "person-who-ends"}
	c.change(lookToken + " role=look name=person-who-looks\n" + endToken + " role=end name=person-who-ends\n")
	c.session("web-3", 1)
	watch := func(token string) (status int, event string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+"live?view=", http.NoBody)
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { _ = response.Body.Close() }) // it watches until the test ends
		lines := bufio.NewScanner(response.Body)
		lines.Buffer(nil, 1<<24)
		for lines.Scan() {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				return response.StatusCode, data
			}
		}
		return response.StatusCode, ""
	}
	for token, name := range names {
		status, event := watch(token)
		require.Equal(t, http.StatusOK, status)
		assert.Contains(t, event, "order/1")
		for other, who := range names {
			assert.NotContains(t, event, who)
			assert.NotContains(t, event, other)
		}
		assert.NotContains(t, event, "confirm")
		assert.Equal(t, name, c.state(token).Person.Name, "control: each person has a state of their own")
	}
	status, event := watch("guessed-0123456789abcdef")
	assert.Equal(t, http.StatusUnauthorized, status, "a rendering that is there is not for a stranger")
	assert.Empty(t, event)
}
