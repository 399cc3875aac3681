// Package pgtable contains what features have in common that keep tables in PostgreSQL: the tables' names, their
// creation, the migration of a schema to a later version, and the SQL of terms.
package pgtable

import (
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// longestName is how many bytes of a name PostgreSQL keeps.
const longestName = 63

var tableName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// Valid reports whether text is "table" or "schema.table". Each suffix makes the name of an object beside the table.
func Valid(text string, suffixes ...string) bool {
	_, name := Split(text)
	for _, suffix := range suffixes {
		if len(name)+len(suffix) > longestName {
			return false
		}
	}
	return tableName.MatchString(text)
}

// Split returns the schema and the name of a valid table; the schema is public unless text contains one.
func Split(text string) (schema, name string) {
	schema, name, ok := strings.Cut(text, ".")
	if !ok {
		return "public", text
	}
	return schema, name
}

// Quote returns the name of a valid table as SQL.
func Quote(text string) string {
	schema, name := Split(text)
	return pgx.Identifier{schema, name}.Sanitize()
}

// A Table is a table with a name that users choose.
type Table struct {
	Name string // a valid one

	// Columns is what CREATE TABLE has between its parentheses, with a line for each column and constraint. A
	// column's name is in lower case, and a constraint begins with a capital letter.
	Columns string

	After string // further statements, such as the creation of an index; they can be run again
}

// SQL returns the statements that create the tables unless they exist.
func SQL(tables ...Table) string {
	var statements []string
	for _, t := range tables {
		statements = append(statements, "CREATE TABLE IF NOT EXISTS "+Quote(t.Name)+" (\n"+t.Columns+"\n)")
		if t.After != "" {
			statements = append(statements, t.After)
		}
	}
	return strings.Join(statements, ";\n")
}

var columnName = regexp.MustCompile(`(?m)^\t([a-z_]+) `)

// checkSQL fails if a table or one of its columns is missing, or may not be read.
func checkSQL(tables []Table) string {
	var statements []string
	for _, t := range tables {
		var columns []string
		for _, found := range columnName.FindAllStringSubmatch(t.Columns, -1) {
			columns = append(columns, pgx.Identifier{found[1]}.Sanitize())
		}
		statements = append(statements, "SELECT "+strings.Join(columns, ", ")+" FROM "+Quote(t.Name)+" LIMIT 0")
	}
	return strings.Join(statements, ";\n")
}
