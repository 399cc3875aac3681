package turnscmd

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/sqlstate"
)

func TestARefusalNamesTheRightsOfAServer(t *testing.T) {
	t.Parallel()
	err := (&post{}).fail(t.Context(), &pgconn.PgError{Code: sqlstate.Privilege, Message: "permission denied for table dead"})
	assert.Equal(t, program.ExitRefused, program.Code(err))
	require.ErrorContains(t, err, "permission denied for table dead")
	require.ErrorContains(t, err, "turns.Grants has the SQL")
	other := (&post{}).fail(t.Context(), &pgconn.PgError{Code: sqlstate.InvalidPassword, Message: "wrong"})
	assert.NotContains(t, other.Error(), "turns.Grants", "control: another refusal has its own remedy")
}
