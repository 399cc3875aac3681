package child

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/cmd/internal/supervise"
)

func TestARightThatIsLostBeforeTheStartStartsNoCommand(t *testing.T) {
	t.Parallel()
	lost := errors.New("lost")
	err := RunUnder(t.Context(), Right{
		Begin: func() context.Context {
			work, lose := context.WithCancelCause(t.Context())
			lose(lost)
			return work
		},
		Release: func() error { return lost },
	}, supervise.Command{Args: []string{"false"}})
	var exit *program.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, program.ExitLost, exit.Code)
	require.ErrorContains(t, err, "the command was not started: lost")
}
