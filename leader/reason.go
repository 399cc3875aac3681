package leader

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
)

// explain logs why attempts do not succeed: each new reason once, and that the last
// one is gone. An attempt that the end of quit ended has no reason.
func (d *drive) explain(in input, quit context.Context) { //nolint:revive // the outcome is the subject
	switch in {
	case failed, hopeless, pending:
		reason := kindOf(d.err)
		if quit.Err() != nil || reason == d.reason {
			return
		}
		d.reason = reason
		log := d.log.With(slog.Any("error", d.err))
		switch {
		case in == pending:
			log.Warn("takeover is not done yet")
		case errors.Is(d.err, ErrPermanent):
			log.Warn("attempt failed", slog.Bool("permanent", true))
		default:
			log.Warn("attempt failed")
		}
	case acquired, refused:
		if d.reason != "" {
			d.reason = ""
			d.log.Info("attempts succeed again")
		}
	default: // a request ended it
	}
}

var number = regexp.MustCompile(`[0-9]+`)

// kindOf is what two errors have in common that differ in ports, pids or times only.
func kindOf(err error) string { return number.ReplaceAllString(err.Error(), "#") }
