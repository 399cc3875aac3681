package docs_test

import (
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
)

// People try the examples of all pages in one database: no two have one key by accident.
func TestTheExamplesHaveDifferentKeys(t *testing.T) {
	t.Parallel()
	inGo := regexp.MustCompile(`namespace\.Must\((\d+), "([a-z-]+)"\)`)
	inShell := regexp.MustCompile(`(?:NAMESPACES=|,|shards [a-z]+ )([a-z-]+)=(\d+)\b`)
	elections := regexp.MustCompile(`(?:namespace\.Pair\(|pglatch leader [a-z]+ )(\d+)(?:, |:)\d+`)
	names, leaders := map[string]string{}, map[string]string{}
	for _, p := range pages(t) {
		if filepath.Dir(p.name) == "docs/coming-from" { // programs of other people
			continue
		}
		define := func(number, name string) {
			if other, known := names[number]; known {
				assert.Equal(t, other, name, "%s: namespace %s has two names", p.name, number)
			}
			names[number] = name
		}
		for _, found := range inGo.FindAllStringSubmatch(p.text, -1) {
			define(found[1], found[2])
		}
		for _, found := range inShell.FindAllStringSubmatch(p.text, -1) {
			define(found[2], found[1])
		}
		for _, found := range elections.FindAllStringSubmatch(p.text, -1) {
			leaders[found[1]] = p.name
		}
	}
	assert.Subset(t, names, map[string]string{"1": "agent", "2": "order", "7": "tenant"}, "the control")
	assert.NotEmpty(t, leaders, "the control")
	for number, page := range leaders {
		assert.NotContains(t, names, number, "%s: an election has the key of an entity", page)
	}
}
