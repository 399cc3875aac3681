package pgtable_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/pgtable"
)

func TestANameIsATableOrASchemaAndATable(t *testing.T) {
	t.Parallel()
	for name, quoted := range map[string]string{
		"terms": `"public"."terms"`, "Ops.My_terms2": `"Ops"."My_terms2"`, "_": `"public"."_"`, strings.Repeat("a", 63): `"public"."` + strings.Repeat("a", 63) + `"`,
	} {
		assert.True(t, pgtable.Valid(name), name)
		assert.Equal(t, quoted, pgtable.Quote(name))
	}
	for _, name := range []string{"", ".", "a.", ".a", "a.b.c", "a b", "2a", `a"b`, "a-b", "ä", "a;b", "a\n", strings.Repeat("a", 64), strings.Repeat("a", 64) + ".a"} {
		assert.False(t, pgtable.Valid(name), name)
	}
}

func TestANameLeavesRoomForTheSuffixes(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("a", 58)
	for _, schema := range []string{"", "ops.", strings.Repeat("s", 63) + "."} {
		assert.True(t, pgtable.Valid(schema+name, "_tick"))
		assert.False(t, pgtable.Valid(schema+name, "_tick", "_order"))
	}
}

func TestTheSQLOfTablesIsOneScript(t *testing.T) {
	t.Parallel()
	assert.Equal(t, `CREATE TABLE IF NOT EXISTS "public"."a" (
	i int PRIMARY KEY
);
CREATE INDEX x ON a (i);
CREATE TABLE IF NOT EXISTS "ops"."b" (
	i int
)`, pgtable.SQL(pgtable.Table{Name: "a", Columns: "\ti int PRIMARY KEY", After: "CREATE INDEX x ON a (i)"}, pgtable.Table{Name: "ops.b", Columns: "\ti int"}))
}
