package overview

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/legible"
)

// widest is how many characters of a user's text a column shows: a line must not fill the screen.
const widest = 60

// Header names the columns of Cells.
func Header() []string {
	return []string{"KEY", "MODE", "HOLDER", "HELD", "WAITERS", "LONGEST", "PID", "LABEL"}
}

// Cells returns a row as the columns of a table.
func (r *Row) Cells() []string {
	holder, held, pid, label := "nobody", "-", "-", ""
	if len(r.Holders) > 0 {
		first := r.first()
		holder, held, pid, label = first.Who(), first.Lasted(), PIDText(first.PID), first.Label
		if first.PID == 0 {
			pid = "-"
		}
		if more := len(r.Holders) - 1; more > 0 {
			holder += fmt.Sprintf(" and %d more", more)
		}
	}
	waiters, longest := "-", "-"
	if len(r.Waiters) > 0 {
		waiters, longest = strconv.Itoa(len(r.Waiters)), r.Waiters[0].atLeast()
	}
	return []string{legible.Clamp(r.Text(), widest), r.Mode(), legible.Clamp(holder, widest), held, waiters, longest, pid, legible.Clamp(orDash(label), widest)}
}

// first returns the holder that a table shows: a silent one, otherwise the oldest.
func (r *Row) first() Party {
	return slices.MaxFunc(r.Holders, func(p, o Party) int {
		if c := number(p.Silent) - number(o.Silent); c != 0 {
			return c
		}
		return int(p.Age/time.Millisecond) - int(o.Age/time.Millisecond)
	})
}

// Text is the key. If its name is unknown, the namespace of its number follows it.
func (r *Row) Text() string {
	if r.namespace != "" && !strings.HasPrefix(r.Key, r.namespace+"/") {
		return r.Key + " of " + r.namespace
	}
	return r.Key
}

// Mode describes how a key is used: "exclusive", "shared", "2 of 3 slots", "election".
func (r *Row) Mode() string {
	switch {
	case r.Kind != Lock && r.Kind != Semaphore:
		return string(r.Kind)
	case r.Kind == Semaphore && r.Slots > 0:
		return fmt.Sprintf("%d of %d slots", len(r.Holders), r.Slots)
	case r.Kind == Semaphore:
		return fmt.Sprintf("%d slots", len(r.Holders))
	case len(r.Holders) > 0 && r.Holders[0].Shared:
		return "shared"
	}
	return "exclusive"
}

// Who returns a party's name, and notes if it is silent.
func (p Party) Who() string {
	name := orDash(p.Name)
	if p.PID == 0 && p.Process == nil {
		name = "a prepared transaction"
	}
	if p.Silent {
		name += " (silent)"
	}
	return name
}

// Lasted returns how long a party has held, at least, or waited.
func (p Party) Lasted() string {
	if !p.Exact && p.Age < 100*time.Millisecond {
		return "-" // seen for the first time; PostgreSQL does not know the start
	}
	return p.atLeast()
}

func (p Party) atLeast() string {
	if p.Exact {
		return Duration(p.Age)
	}
	return "≥" + Duration(p.Age)
}

// Duration formats d with two units at most.
func Duration(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	days := int(d / (24 * time.Hour))
	return fmt.Sprintf("%dd%dh", days, int((d-time.Duration(days)*24*time.Hour)/time.Hour))
}

// PIDText formats the pid of a session.
func PIDText(pid uint32) string {
	if pid == 0 {
		return "prepared" // a prepared transaction holds the lock
	}
	return strconv.FormatUint(uint64(pid), 10)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// String describes a party and how it holds or waits, for people.
func (p Party) String() string {
	var text string
	switch {
	case p.Process != nil && p.PID == 0:
		text = p.Name
	case p.Process != nil:
		text = p.Name + ", backend " + PIDText(p.PID)
	case p.PID == 0:
		text = "a prepared transaction"
	default:
		text = "backend " + PIDText(p.PID)
		if p.Name != "" {
			text += " (" + p.Name + ")"
		}
	}
	mode := "exclusive"
	if p.Shared {
		mode = "shared"
	}
	text += ", " + mode
	if p.Silent {
		text += ", silent: its process does not answer"
	}
	for _, part := range []struct{ before, value string }{{"", p.State}, {"for ", p.since()}, {"label ", legible.Clamp(p.Label, 4*widest)}, {"", p.Note}} {
		if part.value != "" {
			text += ", " + part.before + part.value
		}
	}
	if p.Left > 0 {
		text += ", gives up in " + Duration(p.Left)
	}
	if p.Session != nil {
		text += ", in a session since " + p.Session.Format("2006-01-02T15:04:05Z")
	}
	return text
}

func (p Party) since() string {
	if lasted := p.Lasted(); lasted != "-" {
		return lasted
	}
	return ""
}
