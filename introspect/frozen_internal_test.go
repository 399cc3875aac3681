package introspect

import (
	"fmt"
	"testing"

	"github.com/pglatch/pglatch/internal/test/frozen"
)

func TestQuestionsAndAnswersAreFrozen(t *testing.T) {
	t.Parallel()
	facts := append(frozen.JSON[call](t, "call"), frozen.JSON[message](t, "message")...)
	facts = append(facts, frozen.Constants(t, ".", "askChannel|replyPrefix|partSize|maxParts|ListenerPrefix|Ask[A-Z].*|askStandBack")...)
	facts = append(facts, fmt.Sprintf("sealed for %q: KEM %#x, KDF %#x, AEAD %#x", answerInfo, sealKEM.ID(), sealKDF.ID(), sealAEAD.ID()))
	frozen.Check(t, "messages", facts)
}
