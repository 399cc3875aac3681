// Package multiplex puts many locks on few sessions. Its Source makes virtual
// sessions, one for each acquisition as a Locker asks for them, on real sessions
// of another Source.
//
//	virtual sessions   ○ ○ ○ ○ ○ ○ ○ ○        one per acquisition
//	                   └─┴─┤ ├─┴─┘ └─┴──┐
//	carriers             ▣ ▣            ▥  ▥  lanes
//	                 tries and unlocks,    waits in slices, one key each,
//	                 in batches            and the locks that were won so
//
// A carrier is a real session that tries and unlocks. Each line, of which there are
// as many as configured, has one while it is needed; a key goes to the line that its
// hash says. Operations that arrive while a statement is in flight go out together
// in the next. The goroutine that finds the carrier idle drives it; when its
// statement is answered, one of those that arrived meanwhile drives the next. A
// single operation therefore pays for no other goroutine, and is the plain
// statement.
//
// A session re-enters its own locks. So a carrier keeps a table of the keys that
// are held or in flight on it, and refuses a try of one of them without asking the
// server: this, and not the queues above, is what makes it safe to have two keys'
// holders on one session. Whoever is refused waits on another session.
//
// A key that somebody else holds leaves the carrier at once and waits on a lane. A
// lock that is won on a lane lives there until it is released: moving it would be
// an unlock and a lock, between which somebody else could take it. A lane that
// carries a lock for long also waits for other keys, and its waits are interrupted
// for an unlock, so that locks that are held for ever cannot use the lanes up. Beyond
// the number of lanes, waits take turns slice by slice, and each parked key is also
// tried every 50 ms, in one batch with the others.
//
// The end of a real session is told to every virtual session that has a lock on
// it. The next acquisition on its line connects again, with a pause that grows
// while sessions die or cannot be had.
package multiplex
