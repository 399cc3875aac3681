package driver

import "time"

// A Candidate is the view of an Elector that its backend uses to answer status queries. Its methods are
// safe for concurrent use and do not block.
type Candidate interface {
	// Standing returns the candidate's present status.
	Standing() Standing
	// Resign begins to give up leadership. Work ends first.
	Resign()
	// StandBack makes the candidate leave the next leadership to the candidate with this identity. The
	// candidate makes no attempt until one of these happens:
	//
	//   - That candidate leads.
	//   - Another term has begun.
	//   - The present leader has gone, and no other candidate appears. The candidate then waits for 0.6 s if
	//     the backend is a Contest and finds no other candidate, otherwise for 3 s.
	//
	// If the identity is the candidate's own, it tries at once.
	StandBack(identity string)
}

// A Standing is the status of a candidate.
type Standing struct {
	Name     string // of the election
	Identity string
	State    string
	Since    time.Time // of the state
	// StandsBack reports that the candidate leaves the next leadership to another.
	StandsBack bool
	Leader     string // "" = not known
	Term       Term   // the term in which it leads
	Lease      time.Duration
	Err        error // why the last attempt failed, or the problem that an Auditor found; nil = none
	// HandOvers lists the last changes of leader that the candidate saw, the newest first.
	HandOvers []HandOver
}

// A HandOver is a change of leader.
type HandOver struct {
	At       time.Time
	Identity string // the new leader
	Term     Term
}
