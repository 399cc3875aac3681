package actions

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

func TestTheAuditGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "audit")
	require.NoError(t, os.WriteFile(name, []byte(`{"id":"A","who":"ann","outcome":"begun"}`+"\n"+`{"id":"A","who":"ann","outcome":"done"}`+"\n"+`{"id":"B","wh`), 0o600))
	a, err := openAudit(name)
	require.NoError(t, err)
	require.NoError(t, a.add(Entry{ID: "C", Who: "eva", Outcome: done, Detail: strings.Repeat("x", 5000)}))
	newest := a.newest()
	require.Len(t, newest, 2, "one for each id, without half a line")
	assert.Equal(t, []string{"C", "A"}, []string{newest[0].ID, newest[1].ID})
	assert.Equal(t, done, newest[1].Outcome)
	assert.LessOrEqual(t, len(newest[0].Detail), maxText+10)
	require.NoError(t, a.close())
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	require.Len(t, lines, 4)
	assert.Contains(t, lines[3], `"id":"C"`, "on a line of its own")
	for i := range recent + 5 {
		a.remember(Entry{ID: strconv.Itoa(i)})
	}
	assert.Len(t, a.newest(), recent)
}

func TestAfterSigningInAViewIsShownAndNothingElse(t *testing.T) {
	t.Parallel()
	for next, want := range map[string]string{
		"": "", "?": "", "graph": "graph", "incident?id=v-1&verdict=deadlock": "incident?id=v-1&verdict=deadlock", "?find=%0d%0aX": "?find=%0D%0AX",
		"//evil.example": "", "https://evil.example": "", "javascript:alert(1)": "", "../../x": "", "\\evil": "", "key?id=%zz": "key",
	} {
		assert.Equal(t, want, viewOf(next), next)
	}
}

func TestAPlanThatEndsMoreIsAnotherOne(t *testing.T) {
	t.Parallel()
	shown := &plan{title: "t", same: "s", ends: []string{"a", "b"}}
	for _, c := range []struct {
		now    plan
		within bool
	}{
		{plan{title: "t", same: "s", ends: []string{"a", "b"}}, true},
		{plan{title: "fewer", same: "s", ends: []string{"b"}}, true},
		{plan{title: "t", same: "s", ends: []string{"a", "c"}}, false},
		{plan{title: "t", same: "other", ends: []string{"a"}}, false},
		{plan{title: "t", same: "s", ends: []string{"a", "b", "c"}}, false},
	} {
		assert.Equal(t, c.within, c.now.within(shown), "%+v", c.now)
	}
}
