package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// A narrator tells what happens, with the time since its beginning, and counts claims.
type narrator struct {
	out    io.Writer
	began  time.Time
	colour bool
	ended  func() bool // the user has had enough: what fails now is no news
	scenes int
	claims int
	failed []string
}

func newNarrator(out *os.File, ended func() bool) *narrator {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &narrator{out: out, ended: ended, began: time.Now(), colour: terminal && os.Getenv("NO_COLOR") == ""}
}

// The colours of a terminal.
const (
	bold  = "1"
	faint = "2"
	red   = "31"
	green = "32"
	cyan  = "36"
)

func (n *narrator) paint(colour, text string) string {
	if !n.colour {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

func (n *narrator) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(n.out, format, args...) // nobody listens any more, then
}

func (n *narrator) title(text string) {
	n.printf("\n%s\n%s\n\n", n.paint(bold, text), strings.Repeat("─", len(text)))
}

// scene begins a new part of the story.
func (n *narrator) scene(title string) {
	n.scenes++
	n.printf("\n%s\n", n.paint(bold, fmt.Sprintf("%d  %s", n.scenes, title)))
}

// say tells what happened just now.
func (n *narrator) say(format string, args ...any) {
	at := fmt.Sprintf("%7.3fs", time.Since(n.began).Seconds())
	n.printf("%s  %s\n", n.paint(faint, at), fmt.Sprintf(format, args...))
}

// draw shows lines that have no time of their own.
func (n *narrator) draw(lines ...string) {
	for _, line := range lines {
		n.printf("          %s\n", line)
	}
}

// claim says what was promised, and whether it holds.
func (n *narrator) claim(holds bool, format string, args ...any) {
	if n.ended() {
		return
	}
	n.claims++
	text := fmt.Sprintf(format, args...)
	mark := n.paint(green, "✓")
	if !holds {
		mark = n.paint(red, "✗ NOT TRUE:")
		n.failed = append(n.failed, text)
	}
	n.printf("       %s  %s\n", mark, text)
}

// verdict counts the claims; an error if one failed.
func (n *narrator) verdict() error {
	n.printf("\n")
	if len(n.failed) > 0 {
		return fmt.Errorf("%d of %d claims failed:\n  %s", len(n.failed), n.claims, strings.Join(n.failed, "\n  "))
	}
	n.say("%s", n.paint(green, fmt.Sprintf("all %d claims hold", n.claims)))
	return nil
}

// pretty writes a duration as a reader wants it.
func pretty(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.4g s", d.Round(10*time.Millisecond).Seconds())
}
