package prove

import (
	"fmt"
	"slices"
	"strings"
)

// A Use says whether a part of pglatch may be used on a server.
type Use string

// The uses of a part.
const (
	MayBeUsed     Use = "may be used"
	MayBeUsedWith Use = "may be used with"
	NotProven     Use = "not proven"
	MustNotBeUsed Use = "must not be used"
)

// A Verdict says whether one part of pglatch may be used on the server.
type Verdict struct {
	Part string `json:"part"`
	Use  Use    `json:"use"`
	Why  string `json:"why"`
}

// A part of pglatch relies on some proofs.
type part struct {
	name  string
	needs []string
	wants []want
}

// A want is a proof that a part can do without, with the restriction that applies then.
type want struct{ proof, without string }

var (
	server   = []string{oneServer, primary}
	sessions = append(slices.Clone(server), pooler, samePID, exclusion, sharedMode, lockTable, queue, unlock, endOfSession, terminated, lease, cancelAim)
	guards   = []string{txLocks, txRollback, txSavepoint}

	slowCancel = want{canceling, "a request that is canceled waits for up to 0.9 s longer"}
	answers    = want{notify, "processes do not answer questions (`pglatch ask`, `ls --waiting`)"}
	lateLease  = want{clock, "a holder that is cut off may keep its lock for longer than its lease"}
	guarded    = "no Guard, InTx or DoTx, and tables made on a direct connection"
)

func without(text string, proofs ...string) (all []want) {
	for _, p := range proofs {
		all = append(all, want{p, text})
	}
	return all
}

// parts are the parts of pglatch, in the order of the output.
var parts = []part{
	{"mutex", sessions, []want{slowCancel, answers, lateLease}},
	{"LockTx", slices.Concat(server, guards), []want{{pooler, "a driver that keeps no prepared statements"}}},
	{"elections", slices.Concat(sessions, guards), []want{slowCancel, answers, lateLease}},
	{"leases", append(slices.Clone(server), clock), append(without(guarded, guards...), want{notify, "lock servers that poll each other's changes"})},
	{"once", append(slices.Clone(server), clock), without(guarded, guards...)},
	{"shards", slices.Concat(sessions, guards, []string{clock}), []want{slowCancel, {notify, "nodes that poll for changes"}}},
}

// PartNames lists the parts of pglatch that have a verdict.
func PartNames() (names []string) {
	for _, p := range parts {
		names = append(names, p.name)
	}
	return names
}

// judge derives the verdict from the results.
func (p *part) judge(results []Result) Verdict {
	var failed, unknown, with []string
	for _, r := range results {
		needed := slices.Contains(p.needs, r.Proof)
		wanted := slices.IndexFunc(p.wants, func(w want) bool { return w.proof == r.Proof })
		text := fmt.Sprintf("%s: %s", r.Proof, r.Why)
		switch {
		case r.Status == Works, !needed && (wanted < 0 || r.Status == WorksWith):
		case r.Status == WorksWith:
			with = append(with, text)
		case !needed:
			if without := p.wants[wanted].without; !slices.Contains(with, without) {
				with = append(with, without)
			}
		case r.Status == DoesNot:
			failed = append(failed, r.Proof)
		default:
			unknown = append(unknown, r.Proof)
		}
	}
	v := Verdict{Part: p.name}
	switch {
	case failed != nil:
		v.Use, v.Why = MustNotBeUsed, "does not work: "+strings.Join(failed, ", ")
	case unknown != nil:
		v.Use, v.Why = NotProven, "unknown: "+strings.Join(unknown, ", ")
	case with != nil:
		v.Use, v.Why = MayBeUsedWith, strings.Join(with, "; ")
	default:
		v.Use, v.Why = MayBeUsed, "each proof that it needs was given"
	}
	return v
}
