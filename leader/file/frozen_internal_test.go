package file

import (
	"testing"

	"github.com/pglatch/pglatch/internal/test/frozen"
)

func TestTheRecordOfAnElectionIsFrozen(t *testing.T) {
	t.Parallel()
	frozen.Check(t, "record", frozen.JSON[record](t, "record"))
}
