package driver

import "time"

// A Candidate is an Elector, as its backend shows it to those who ask what goes on. Its
// methods are safe for concurrent use and do not block.
type Candidate interface {
	// Standing tells how it stands.
	Standing() Standing
	// Resign begins to give leadership up: work is drained first.
	Resign()
	// StandBack has it leave the next leadership to the candidate that has this identity: it waits
	// until that one leads, or another term has begun, or the present leader has gone and no other candidate wants
	// to follow, for a second at most. If it is that one, it tries at once.
	StandBack(identity string)
}

// A Standing is how a candidate stands.
type Standing struct {
	Name     string // of the election
	Identity string
	State    string
	Since    time.Time // of the state
	// StandsBack: it leaves the next leadership to another candidate.
	StandsBack bool
	Leader     string // "" = not known
	Term       Term   // in which it leads
	Lease      time.Duration
	Err        error // why the last attempt failed, or what an Auditor found; nil = nothing
	// HandOvers are the last changes of leader that it saw, the newest first.
	HandOvers []HandOver
}

// A HandOver is a change of leader.
type HandOver struct {
	At       time.Time
	Identity string // who leads since
	Term     Term
}
