package check

// Linked are the types of linked.go, by the files and names that they stand for.
var Linked = map[string]any{
	"leader/machine.go row":           row{},
	"leader/machine.go position":      position{},
	"leader/machine.go rules":         ruling{},
	"leader/machine.go transition":    transition{},
	"lease/internal/rules/row.go Row": leaseRow{},
	"leader/machine.go action":        action(0),
	"leader/machine.go condition":     condition(0),
}

// Actions are the numbers of actions, by their names in package leader.
var Actions = map[string]int{
	"emitAcquired": int(emitAcquired), "emitRecovered": int(emitRecovered), "emitReleased": int(emitReleased), "emitLost": int(emitLost),
	"emitAcquireFailed": int(emitAcquireFailed), "emitError": int(emitError), "emitStopped": int(emitStopped),
}

// TableSize is the number of rows of the machine of an elector.
func TableSize() int { return len(leaderTable) }
