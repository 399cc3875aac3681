package demokit

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// A Narrator tells what happens, with the time since its beginning, and counts claims.
type Narrator struct {
	out    io.Writer
	began  time.Time
	colour bool
	width  func() int  // columns of out
	ended  func() bool // the user has had enough: what fails now is no news
	scenes int
	claims int
	failed []string
	live   int       // rows that Live has drawn and may draw over
	told   time.Time // when Live said something last
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

// Paint colours text, on a terminal.
func (n *Narrator) Paint(colour, text string) string {
	if !n.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// Printf prints without a time.
func (n *Narrator) Printf(format string, args ...any) {
	n.live = 0                                 // they stay as they are, above this
	_, _ = fmt.Fprintf(n.out, format, args...) // nobody listens any more, then
}

// title begins the story.
func (n *Narrator) title(text string) {
	n.Printf("\n%s\n%s\n\n", n.Paint(Bold, wrap(text, 0, n.width())), strings.Repeat("─", min(columns(text), n.width())))
}

// scene begins a new part of the story.
func (n *Narrator) scene(title string) {
	n.scenes++
	n.Printf("\n%s\n", n.Paint(Bold, fmt.Sprintf("%d  %s", n.scenes, wrap(title, 3, n.width()))))
}

// indent is where the words of a line begin, after the time or the mark of a claim.
const indent = 10

// Say tells what happened just now.
func (n *Narrator) Say(format string, args ...any) {
	at := fmt.Sprintf("%7.3fs", time.Since(n.began).Seconds())
	n.Printf("%s  %s\n", n.Paint(Faint, at), wrap(fmt.Sprintf(format, args...), indent, n.width()))
}

// Draw shows lines that have no time of their own.
func (n *Narrator) Draw(lines ...string) {
	for _, line := range lines {
		n.Printf("%*s%s\n", indent, "", wrap(line, indent, n.width()))
	}
}

// Room is how many columns Draw and Live have.
func (n *Narrator) Room() int { return n.width() - indent }

// Live draws lines that change in their place, until something else is printed. Where there are no colours,
// which is where nothing can be drawn over, it says instead what all of it is in short, once a second at most.
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

// Claim says what was promised, and whether it holds.
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

// verdict counts the claims; an error if one failed.
func (n *Narrator) verdict() error {
	n.Printf("\n")
	if len(n.failed) > 0 {
		return fmt.Errorf("%d of %d claims failed:\n  %s", len(n.failed), n.claims, strings.Join(n.failed, "\n  "))
	}
	n.Say("%s", n.Paint(Green, fmt.Sprintf("all %d claims hold", n.claims)))
	return nil
}

// Pretty writes a duration as a reader wants it.
func Pretty(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.4g s", d.Round(10*time.Millisecond).Seconds())
}
