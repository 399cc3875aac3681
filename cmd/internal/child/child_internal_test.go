//go:build unix

package child

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/cmd/internal/supervise"
)

// A signal that comes while a command begins to listen ends the context before the
// command starts, or the command gets it.
func TestNoSignalIsLostWhenACommandBeginsToListen(t *testing.T) {
	guard := make(chan os.Signal, 1) // else a late one would end the tests
	signal.Notify(guard, syscall.SIGTERM)
	defer signal.Stop(guard)
	for range 2000 {
		ctx, stop := WithSignals(t.Context())
		begins := time.Now().Add(rand.N(150 * time.Microsecond))
		sent := make(chan error, 1)
		go func() { sent <- syscall.Kill(os.Getpid(), syscall.SIGTERM) }()
		for time.Now().Before(begins) { // a timer is too slow
		}
		signals, silence := Listen(ctx)
		if ctx.Err() == nil {
			<-signals
		}
		assert.NoError(t, <-sent)
		<-ctx.Done()
		silence()
		stop()
	}
}

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
