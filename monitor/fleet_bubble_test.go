package monitor

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/monitor/fleet"
)

func TestTablesThatNoLongerAnswerAreAProblemUntilTheyDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		away := errors.New("no connection")
		m := &Monitor{lifetime: t.Context(), config: Config{Logger: background.Logger(nil), Fleet: func(context.Context) (fleet.Fleet, error) {
			return fleet.Fleet{Jobs: []fleet.Job{{Name: "nightly"}}, Problems: []string{"denied"}}, away
		}}}
		read := func() *fleet.Fleet {
			time.Sleep(fleetEvery)
			m.fleetNow()
			m.work.Wait()
			f, _ := m.fleetNow()
			return f
		}
		assert.Nil(t, read(), "nothing was read yet")
		for range 2 {
			away = nil
			f := read()
			require.NotNil(t, f)
			assert.Equal(t, []string{"denied"}, f.Problems, "control: they answer")
			away = errors.New("no connection")
			for range 2 {
				f = read()
				assert.Equal(t, []string{"denied", notRead}, f.Problems)
				assert.Len(t, f.Jobs, 1, "what they had before")
			}
		}
	})
}
