package riverlock

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/riverqueue/river/rivertype"

	"github.com/pglatch/pglatch/namespace"
)

// MetadataKey is the name in a snoozed job's metadata under which it stores the key that it waits
// for, as text (namespace.Tag.String). The value is null once the job has run.
const MetadataKey = "pglatch:key"

// A Config sets which jobs exclude each other. For every field but Key the zero value is a good
// default.
type Config struct {
	// Key returns the key that the job needs, or the zero Key if it needs none. An error becomes
	// the job's error, and the job is not run. See Args.
	Key func(job *rivertype.JobRow) (namespace.Key, error)

	// Wait is how long a job waits in its worker for a held key before it is snoozed. It lets short
	// jobs follow each other faster than River fetches. 0 = 100 ms; negative = do not wait.
	Wait time.Duration

	// Snooze is the time after which a snoozed job is retried if no process wakes it. The retries
	// are spread over the second half of that time. 0 = 1 minute.
	Snooze time.Duration

	// Watch is the longest interval at which a process checks the keys for which it has snoozed
	// jobs. The check lets them continue if a holder died or was not a job. 0 = 2 s.
	Watch time.Duration

	// Schema is the schema of River's tables, as in river.Config. "" = the search path.
	Schema string

	// Logger receives the reasons why a job could not be locked or woken (Warn). nil = discard.
	Logger *slog.Logger
}

// Args makes a Config.Key for jobs with one kind of arguments: other kinds need no lock.
func Args[T interface{ Kind() string }](key func(args T) namespace.Key) func(*rivertype.JobRow) (namespace.Key, error) {
	var kind T
	return func(job *rivertype.JobRow) (namespace.Key, error) {
		if job.Kind != kind.Kind() {
			return namespace.Key{}, nil
		}
		var args T
		if err := json.Unmarshal(job.EncodedArgs, &args); err != nil {
			return namespace.Key{}, fmt.Errorf("riverlock: arguments of job %d: %w", job.ID, err)
		}
		return key(args), nil
	}
}
