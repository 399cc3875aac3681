package demokit

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// A Narrator prints events with the time since its start, and counts claims.
type Narrator struct {
	out    io.Writer
	began  time.Time
	colour bool
	width  func() int  // columns of out
	ended  func() bool // the user pressed Ctrl-C: failures no longer matter
	scenes int
	claims int
	failed []string
	live   int       // rows that Live has drawn and may overwrite
	told   time.Time // when Live last printed its summary
}

func newNarrator(out *os.File, ended func() bool) *Narrator {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &Narrator{
		out: out, ended: ended, began: time.Now(), colour: terminal && os.Getenv("NO_COLOR") == "",
		width: func() int { return cmp.Or(widthOf(out), defaultWidth) },
	}
}

// The colours of a terminal.
const (
	Bold  = "1"
	Faint = "2"
	Red   = "31"
	Green = "32"
	Cyan  = "36"
)

// Paint colours text if the output shows colours.
func (n *Narrator) Paint(colour, text string) string {
	if !n.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// Printf prints without a time.
func (n *Narrator) Printf(format string, args ...any) {
	n.live = 0                                 // rows of Live above this line stay
	_, _ = fmt.Fprintf(n.out, format, args...) // an error means that nobody reads the output any more
}

// title begins the story.
func (n *Narrator) title(text string) {
	n.Printf("\n%s\n%s\n\n", n.Paint(Bold, wrap(text, 0, n.width())), strings.Repeat("─", min(columns(text), n.width())))
}

// scene begins a new scene.
func (n *Narrator) scene(title string) {
	n.scenes++
	n.Printf("\n%s\n", n.Paint(Bold, fmt.Sprintf("%d  %s", n.scenes, wrap(title, 3, n.width()))))
}

// indent is the column at which the words of a line begin, after the time or the mark of a claim.
const indent = 10

// Say prints an event with the current time.
func (n *Narrator) Say(format string, args ...any) {
	at := fmt.Sprintf("%7.3fs", time.Since(n.began).Seconds())
	n.Printf("%s  %s\n", n.Paint(Faint, at), wrap(fmt.Sprintf(format, args...), indent, n.width()))
}

// Draw prints lines without a time.
func (n *Narrator) Draw(lines ...string) {
	for _, line := range lines {
		n.Printf("%*s%s\n", indent, "", wrap(line, indent, n.width()))
	}
}

// Room returns the number of columns for Draw and Live.
func (n *Narrator) Room() int { return n.width() - indent }

// Live draws lines that change in place until something else is printed. An output without colours cannot be
// overdrawn: there Live prints short instead, at most once a second.
func (n *Narrator) Live(short string, lines ...string) {
	if !n.colour {
		if time.Since(n.told) >= time.Second {
			n.told = time.Now()
			n.Say("%s", short)
		}
		return
	}
	var frame strings.Builder
	if n.live > 0 {
		fmt.Fprintf(&frame, "\x1b[%dA\x1b[J", n.live)
	}
	rows := 0
	for _, line := range lines {
		text := wrap(line, indent, n.width())
		fmt.Fprintf(&frame, "%*s%s\n", indent, "", text)
		rows += 1 + strings.Count(text, "\n")
	}
	n.Printf("%s", frame.String())
	n.live = rows
}

// Claim prints a promise and whether it holds.
func (n *Narrator) Claim(holds bool, format string, args ...any) {
	if n.ended() {
		return
	}
	n.claims++
	text := fmt.Sprintf(format, args...)
	mark := n.Paint(Green, "✓")
	if !holds {
		mark = n.Paint(Red, "✗")
		n.failed = append(n.failed, text)
		text = "NOT TRUE: " + text
	}
	n.Printf("       %s  %s\n", mark, wrap(text, indent, n.width()))
}

// verdict prints how many claims held. It returns an error if one failed.
func (n *Narrator) verdict() error {
	n.Printf("\n")
	if len(n.failed) > 0 {
		return fmt.Errorf("%d of %d claims failed:\n  %s", len(n.failed), n.claims, strings.Join(n.failed, "\n  "))
	}
	n.Say("%s", n.Paint(Green, fmt.Sprintf("all %d claims hold", n.claims)))
	return nil
}

// Pretty formats a duration for readers.
func Pretty(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.4g s", d.Round(10*time.Millisecond).Seconds())
}
