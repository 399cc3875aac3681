package supervise_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
)

// A console is an interactive shell on a terminal.
type console struct {
	t    *testing.T
	file *os.File // the terminal's other end

	mu   sync.Mutex
	said bytes.Buffer
}

func ioctl(t *testing.T, file *os.File, request uintptr, value *int32) {
	t.Helper()
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, file.Fd(), request, uintptr(unsafe.Pointer(value)))
	require.Zero(t, errno)
}

// keepOutput has Ctrl-C and Ctrl-Z throw away no output: the terminal does it after
// the signal, and on a busy machine that is after what the signal brought forth.
func keepOutput(t *testing.T, tty *os.File) {
	t.Helper()
	var settings syscall.Termios
	for _, request := range []uintptr{syscall.TCGETS, syscall.TCSETS} {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, tty.Fd(), request, uintptr(unsafe.Pointer(&settings)))
		require.Zero(t, errno)
		settings.Lflag |= syscall.NOFLSH
	}
}

// openConsole starts the shell; "wrapper" in it supervises the command script.
func openConsole(t *testing.T, script string) *console {
	t.Helper()
	file, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	var unlock, number int32
	ioctl(t, file, syscall.TIOCSPTLCK, &unlock)
	ioctl(t, file, syscall.TIOCGPTN, &number)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	keepOutput(t, tty)
	sh := exec.CommandContext(t.Context(), "/bin/sh", "-i")
	sh.Env = append(os.Environ(), "PS1=prompt> ", "ENV=", "PGLATCH_SUPERVISE="+script, "WRAPPER="+os.Args[0])
	sh.Stdin, sh.Stdout, sh.Stderr = tty, tty, tty
	sh.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, sh.Start())
	require.NoError(t, tty.Close())
	c := &console{t: t, file: file}
	var reading sync.WaitGroup
	reading.Go(func() {
		part := make([]byte, 1000)
		for {
			n, err := file.Read(part) // fails when the last process has closed the terminal
			c.mu.Lock()
			c.said.Write(part[:n])
			c.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
	t.Cleanup(func() {
		_ = sh.Process.Kill() // the kernel hangs up on the rest
		_ = sh.Wait()
		reading.Wait()
		_ = file.Close()
	})
	c.reads("prompt>")
	return c
}

func (c *console) types(text string) {
	c.t.Helper()
	_, err := c.file.WriteString(text)
	require.NoError(c.t, err)
}

// reads waits for text on the screen and forgets what came before its end.
func (c *console) reads(text string) {
	c.t.Helper()
	c.until(text)
}

// until is reads and returns what came before text.
func (c *console) until(text string) (before string) {
	c.t.Helper()
	var said string
	await.Until(c.t, patience, func() (ok bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		var after string
		said = c.said.String()
		if before, after, ok = strings.Cut(said, text); ok {
			c.said.Reset()
			c.said.WriteString(after)
		}
		return ok
	}, func() string { return fmt.Sprintf("%q is not in %q", text, said) })
	return before
}

func TestAChildOnATerminalReadsFromIt(t *testing.T) {
	t.Parallel()
	c := openConsole(t, `echo ask; read answer; echo got:$answer; exit 6`)
	c.types("$WRAPPER\n")
	c.reads("ask\r\n")
	c.types("42\n")
	c.reads("got:42")
	c.reads("prompt>")
	c.types("echo code:$?\n") // the shell reads again: the terminal is its own
	c.reads("code:6")
}

func TestCtrlCReachesTheChildOnATerminal(t *testing.T) {
	t.Parallel()
	c := openConsole(t, `trap "echo interrupted; exit 8" INT; echo ready; while :; do sleep 0.05; done`)
	c.types("$WRAPPER\n")
	c.reads("ready\r\n")
	c.types("\x03")
	c.reads("interrupted")
	c.reads("prompt>")
	c.types("echo code:$?\n")
	c.reads("code:8")
}

func TestCtrlZStopsTheChildAndItsWrapperUntilTheyGoOn(t *testing.T) {
	t.Parallel()
	c := openConsole(t, `echo ready; while read word; do echo got:$word; done`)
	c.types("$WRAPPER\n")
	c.reads("ready\r\n")
	for range 2 {
		c.types("\x1a")
		c.reads("Stopped")
		c.reads("prompt>")
		c.types("echo still:here\n")
		c.reads("\nstill:here")
		c.types("fg\nword\n")
		c.reads("got:word")
	}
	c.types("\x04")
	c.reads("prompt>")
}

// What has no terminal as its input is not the foreground group, and its wrapper gets the keys.
func TestCtrlZStopsAChildInTheBackgroundOfTheTerminalToo(t *testing.T) {
	t.Parallel()
	// The child starts no processes: a shell that is stopped while it does, in vfork(2), is in state D until it goes on.
	c := openConsole(t, `echo pid:$$:; exec sleep 1000`)
	c.types("$WRAPPER </dev/null\n")
	pid := c.readsPID("pid")
	c.types("\x1a")
	c.reads("Stopped")
	await.Until(t, patience, func() bool { return state(pid) == "T" }) // kill(2) does not wait for the stop
	c.types("fg\n")
	await.Until(t, patience, func() bool { return state(pid) != "T" })
	c.types("\x03")
	c.reads("prompt>")
	c.types("echo code:$?\n")
	c.reads("code:130")
	requireGone(t, pid)
}

// state returns the state letter of proc_pid_stat(5), "" if there is no process.
func state(pid int) string {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, fields, _ := strings.Cut(string(stat), ") ")
	return fields[:min(1, len(fields))]
}
