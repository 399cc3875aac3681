package docs_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	reference = regexp.MustCompile(`\[[^\]]+\]\[([a-z0-9-]+)\]`)
	defined   = regexp.MustCompile(`(?m)^\[([a-z0-9-]+)\]: (\S+)$`)
)

// The comparison has three tables of promises, with the same rows. A cell without a source is "not stated" or "not applicable".
func TestEveryCellOfTheComparisonHasASource(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("comparison.md")
	require.NoError(t, err)
	text := string(content)
	tables := 0
	var promises []string
	for _, part := range strings.Split(text, "\n## ")[1:] {
		_, body, _ := strings.Cut(part, "\n")
		var rows [][]string
		for line := range strings.Lines(body) {
			if strings.HasPrefix(line, "| ") {
				rows = append(rows, strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | "))
			}
		}
		if len(rows) < 2 || rows[1][0] != "works behind a transaction pooler" { // another table, or none
			continue
		}
		tables++
		var now []string
		for _, row := range rows[1:] {
			now = append(now, row[0])
			assert.Len(t, row, len(rows[0])+1, row[0]) // the first cell of the head is empty
			for _, cell := range row[1:] {
				if cell != "not stated" && cell != "not applicable" {
					assert.Regexp(t, `\]\(|\]\[`, cell, row[0])
				}
			}
		}
		if promises == nil {
			promises = now
		}
		assert.Equal(t, promises, now, "each table has the same rows")
	}
	assert.Equal(t, 3, tables)

	addresses := map[string]string{}
	for _, m := range defined.FindAllStringSubmatch(text, -1) {
		assert.Empty(t, addresses[m[1]], "%s is defined twice", m[1])
		addresses[m[1]] = m[2]
		if !strings.Contains(m[2], "://") {
			_, err := os.Stat(m[2])
			assert.NoError(t, err, m[1])
		}
	}
	used := map[string]bool{}
	for _, m := range reference.FindAllStringSubmatch(text, -1) {
		used[m[1]] = true
		assert.Contains(t, addresses, m[1])
	}
	for name := range addresses {
		assert.True(t, used[name], "no cell refers to %s", name)
	}
}

func TestTheComparisonIsShort(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile("comparison.md")
	require.NoError(t, err)
	words := 0
	for line := range strings.Lines(string(content)) {
		if !strings.HasPrefix(line, "|") && !defined.MatchString(strings.TrimSpace(line)) {
			words += len(strings.Fields(line))
		}
	}
	assert.LessOrEqual(t, words, 1200, "words of prose, without tables")
}
