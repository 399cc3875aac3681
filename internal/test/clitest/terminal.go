package clitest

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gdamore/tcell/v3/vt"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/proctest"
)

// A Terminal is a program on its own terminal: a pseudo-terminal of the kernel, and an emulator that holds what the
// user sees.
type Terminal struct {
	*Program
	t        *testing.T
	file     *os.File // the user's end of the pseudo-terminal
	emulator vt.MockTerm

	mu            sync.Mutex
	width, height int
}

// StartOnTerminal starts the program on a terminal of that size.
func StartOnTerminal(t *testing.T, env []string, width, height int, args ...string) *Terminal {
	t.Helper()
	return startOnTerminal(t, func(says []byte) []byte { return says }, env, width, height, args...)
}

// StartOnTmux is StartOnTerminal with a terminal that answers like tmux 3.3: to a query for its size (CSI 18 t) it
// returns width and height exchanged.
func StartOnTmux(t *testing.T, env []string, width, height int, args ...string) *Terminal {
	t.Helper()
	right, wrong := fmt.Sprintf("\x1b[8;%d;%dt", height, width), fmt.Sprintf("\x1b[8;%d;%dt", width, height)
	return startOnTerminal(t, func(says []byte) []byte { return bytes.ReplaceAll(says, []byte(right), []byte(wrong)) }, env, width, height, args...)
}

// startOnTerminal passes the terminal's output through says.
func startOnTerminal(t *testing.T, says func([]byte) []byte, env []string, width, height int, args ...string) *Terminal {
	t.Helper()
	file, tty := pseudoTerminal(t)
	x := &Terminal{t: t, file: file, emulator: vt.NewMockTerm(vt.MockOptSize{X: vt.Col(width), Y: vt.Row(height)})}
	require.NoError(t, x.emulator.Start())
	x.Resize(width, height)
	cmd := proctest.Command(t, Binary, args...)
	cmd.Env = environ(append([]string{"TERM=xterm-256color"}, env...))
	cmd.Stdin, cmd.Stdout = tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	x.Program = start(t, cmd)
	require.NoError(t, tty.Close())
	x.connect(says)
	return x
}

// connect transfers data between the program and the emulator.
func (x *Terminal) connect(says func([]byte) []byte) {
	var passing sync.WaitGroup
	passing.Go(func() {
		part := make([]byte, 4096)
		for {
			n, err := x.file.Read(part) // fails when the last process has closed the terminal
			if err != nil {
				return
			}
			x.mu.Lock() // so that an observer sees all of it
			_, _ = x.emulator.Write(part[:n])
			_ = x.emulator.Drain()
			x.mu.Unlock()
		}
	})
	go func() { // ends with the emulator
		part := make([]byte, 4096)
		for {
			n, err := x.emulator.Read(part)
			if err != nil {
				return
			}
			_, _ = x.file.Write(says(part[:n]))
		}
	}()
	x.t.Cleanup(func() {
		x.Kill()
		_ = x.file.Close()
		passing.Wait()
		_ = x.emulator.Close()
	})
}

// Resize changes the size; the kernel notifies the program.
func (x *Terminal) Resize(width, height int) {
	x.t.Helper()
	x.mu.Lock()
	x.width, x.height = width, height
	x.mu.Unlock()
	x.emulator.SetSize(vt.Coord{X: vt.Col(width), Y: vt.Row(height)})
	require.NoError(x.t, unix.IoctlSetWinsize(int(x.file.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(height), Col: uint16(width)}))
}

// Types types text.
func (x *Terminal) Types(text string) {
	x.t.Helper()
	_, err := x.file.WriteString(text)
	require.NoError(x.t, err)
}

// Lines returns the lines that the user sees, without trailing spaces.
func (x *Terminal) Lines() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	lines := make([]string, x.height)
	for y := range lines {
		var line strings.Builder
		for column := 0; column < x.width; column++ {
			cell := x.emulator.GetCell(vt.Coord{X: vt.Col(column), Y: vt.Row(y)})
			if cell.C == "" {
				cell.C = " "
			}
			line.WriteString(cell.C)
			column += max(cell.W-1, 0)
		}
		lines[y] = strings.TrimRight(line.String(), " ")
	}
	return lines
}

// Shows waits until condition holds for the lines that the user sees.
func (x *Terminal) Shows(condition func(lines []string) bool) []string {
	x.t.Helper()
	var lines []string
	await.Until(x.t, await.Soon, func() bool { lines = x.Lines(); return condition(lines) },
		func() string { return strings.Join(lines, "\n") + "\n" + x.Stderr.String() })
	return lines
}
