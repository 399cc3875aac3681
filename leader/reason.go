package leader

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"time"
)

// explain logs why attempts fail, as trouble describes, and when they succeed again. It ignores an attempt
// that the end of quit ended.
func (d *drive) explain(in input, quit context.Context) { //nolint:revive // the outcome is the subject
	switch in {
	case failed, hopeless, pending:
		if quit.Err() != nil {
			return
		}
		switch log := d.reason.about(d.err, d.log); {
		case log == nil: // already logged
		case in == pending:
			log.Warn("takeover is not done yet")
		case errors.Is(d.err, ErrPermanent):
			log.Warn("attempt failed", slog.Bool("permanent", true))
		default:
			log.Warn("attempt failed")
		}
	case acquired, refused:
		if d.reason.end() {
			d.log.Info("attempts succeed again")
		}
	default: // a request ended the attempt
	}
}

// repeatAfter is the time between two log lines about one lasting trouble.
const repeatAfter = time.Minute

// A trouble is an error that lasts. It is logged when it is new, and then each minute. The zero value is no
// trouble.
type trouble struct {
	kind          string    // kindOf all of its errors; "" = no trouble
	began, logged time.Time // the first error of this kind, and the last log line
}

// about returns a logger with err and the time for which errors of its kind have lasted. It returns nil if
// the trouble was logged less than a minute ago.
func (t *trouble) about(err error, log *slog.Logger) *slog.Logger {
	now := time.Now()
	log = log.With(slog.Any("error", err))
	switch kind := kindOf(err); {
	case kind != t.kind:
		*t = trouble{kind, now, now}
		return log
	case now.Sub(t.logged) < repeatAfter:
		return nil
	}
	t.logged = now
	return log.With(slog.Duration("for", now.Sub(t.began).Round(time.Second)))
}

// end ends the trouble and reports whether there was one.
func (t *trouble) end() bool {
	there := t.kind != ""
	*t = trouble{}
	return there
}

var number = regexp.MustCompile(`[0-9]+`)

// kindOf returns err's text with numbers masked. Errors that differ only in ports, pids or times have the
// same kind.
func kindOf(err error) string { return number.ReplaceAllString(err.Error(), "#") }
