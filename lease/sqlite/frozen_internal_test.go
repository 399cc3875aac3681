package sqlite

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pglatch/pglatch/internal/test/frozen"
)

// A file of another version is refused (ErrForeign), so every change needs a new version, and a way to it.
func TestTheTablesOfTheFileAreFrozen(t *testing.T) {
	t.Parallel()
	facts := []string{fmt.Sprintf("application_id %#x, user_version %d", applicationID, schemaVersion)}
	table := ""
	for line := range strings.Lines(schema) {
		line = strings.Join(strings.Fields(line), " ")
		if strings.HasPrefix(line, "CREATE ") {
			table = strings.TrimSuffix(line, " (")
		}
		facts = append(facts, table+" | "+line)
	}
	frozen.Check(t, "tables", facts)
}
