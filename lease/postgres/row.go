package postgres

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

// The outcomes of the functions in the schema. The third one is "refused", for which package rules
// gives the reason.
const (
	done = "done"
	busy = "busy"
)

// An answer is the result of the functions in the schema.
type answer struct {
	outcome string
	seen    time.Time // the server's time of the decision
	row     rules.Row // as it is stored now; zero = the name is unknown
	err     error     // nil = the rest is valid
}

// answerJSON is an answer in JSON. The server prepares it faster than twenty columns, and its times
// do not depend on a session's settings.
type answerJSON struct {
	Outcome string    `json:"outcome"`
	Seen    time.Time `json:"seen"`
	Row     struct {  // all null if there is none
		Name           string            `json:"name"`
		Holder         string            `json:"holder"`
		ID             string            `json:"id"`
		Token          uint64            `json:"token"`
		Version        uint64            `json:"version"`
		AcquiredAt     time.Time         `json:"acquired_at"`
		ExpiresAt      time.Time         `json:"expires_at"`
		ReleasedAt     time.Time         `json:"released_at"`
		Metadata       map[string]string `json:"metadata"`
		IdempotencyKey string            `json:"idempotency_key"`
		LockDelay      int64             `json:"lock_delay"` // microseconds, as the next two
		MinHold        int64             `json:"min_hold"`
		MaxLifetime    int64             `json:"max_lifetime"`
		Cleared        bool              `json:"cleared"`
		Uncounted      int               `json:"uncounted"`
		LastRelease    string            `json:"last_release"`
	} `json:"r"`
}

func parse(text string) (answer, error) {
	var a answerJSON
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return answer{}, fmt.Errorf("answer of the schema %s: %w", schemaName, err)
	}
	r := a.Row
	if len(r.Metadata) == 0 {
		r.Metadata = nil
	}
	return answer{outcome: a.Outcome, seen: a.Seen.UTC(), row: rules.Row{
		Claim:          lease.Claim{Name: r.Name, Holder: r.Holder, ID: r.ID, Token: r.Token},
		IdempotencyKey: r.IdempotencyKey,
		Metadata:       r.Metadata,
		AcquiredAt:     r.AcquiredAt.UTC(),
		ExpiresAt:      r.ExpiresAt.UTC(),
		ReleasedAt:     r.ReleasedAt.UTC(),
		LockDelay:      duration(r.LockDelay),
		MinHold:        duration(r.MinHold),
		MaxLifetime:    duration(r.MaxLifetime),
		Cleared:        r.Cleared,
		Uncounted:      r.Uncounted,
		LastRelease:    r.LastRelease,
		Version:        r.Version,
	}}, nil
}

func duration(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

// micros returns a duration in microseconds, rounded up, so that a lease never ends before its
// client expects.
func micros(d time.Duration) int64 {
	us := d / time.Microsecond
	if d%time.Microsecond > 0 {
		us++
	}
	return int64(us)
}
