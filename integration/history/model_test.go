//go:build integration

package history

import (
	"time"

	"github.com/anishathalye/porcupine"
)

// An event is one acquisition, or its end, as a worker saw it. The end of a lock
// that was lost may have come at any time since the grant: its Call is that of
// the grant's return.
type event struct {
	Key     int64 `json:"key"`
	Hold    int64 `json:"hold"` // unique in all processes
	Acquire bool  `json:"acquire"`
	Call    int64 `json:"call"`
	Return  int64 `json:"return"`
}

const free int64 = 0

// lockModel: an acquisition finds the key free, an end finds it held by itself.
var lockModel = porcupine.Model{
	Init: func() any { return free },
	Step: func(state, input, _ any) (bool, any) {
		e := input.(event)
		if e.Acquire {
			return state == free, e.Hold
		}
		return state == e.Hold, free
	},
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := make(map[int64][]porcupine.Operation)
		for _, op := range history {
			key := op.Input.(event).Key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
}

const checkLimit = time.Minute

// check judges a history; Unknown, when the limit ends it, is no Ok.
func check(events []event) porcupine.CheckResult {
	history := make([]porcupine.Operation, len(events))
	for i, e := range events {
		history[i] = porcupine.Operation{ClientId: int(e.Hold % 1000), Input: e, Call: e.Call, Return: e.Return}
	}
	return porcupine.CheckOperationsTimeout(lockModel, history, checkLimit)
}
