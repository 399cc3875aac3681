package supervise_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/await"
)

// foreground returns the terminal's foreground group.
func (c *console) foreground() int {
	c.t.Helper()
	var group int32
	ioctl(c.t, c.file, syscall.TIOCGPGRP, &group)
	return int(group)
}

// readsPID waits for "name:PID:" on the screen.
func (c *console) readsPID(name string) int {
	c.t.Helper()
	c.reads(name + ":")
	pid, err := strconv.Atoi(c.until(":"))
	require.NoError(c.t, err)
	return pid
}

// spinUntil looks without a pause: what it looks for may last for microseconds.
func spinUntil(limit time.Duration, condition func() bool) {
	for end := time.Now().Add(limit); !condition() && time.Now().Before(end); {
	}
}

func TestCtrlZInTheInstantOfTheStartStopsBoth(t *testing.T) {
	t.Parallel()
	for range 40 {
		c := openConsole(t, `exec sleep 1000`)
		shell := c.foreground()
		c.types("$WRAPPER\n")
		var wrapper, child int
		spinUntil(patience, func() bool { wrapper = c.foreground(); return wrapper != shell })
		spinUntil(time.Second, func() bool { child = c.foreground(); return child != wrapper }) // it can be the child's already
		c.types("\x1a")
		c.reads("Stopped")
		await.Until(t, patience, func() bool { return state(child) == "T" && state(wrapper) == "T" })
	}
}

func TestCtrlCOnTheTerminalIsAnInterrupt(t *testing.T) {
	t.Parallel()
	c := openConsole(t, `echo ready; exec sleep 1000`)
	c.types("PGLATCH_TELL=1 $WRAPPER\n")
	c.reads("ready\r\n")
	c.types("\x03")
	c.reads("interrupted by: interrupt")
}

// A pager reads the keys from the terminal, which its group needs for that.
func TestAPipelineKeepsTheTerminal(t *testing.T) {
	t.Parallel()
	c := openConsole(t, `echo child:$$:; exec sleep 1000`)
	c.types("$WRAPPER | (read line; echo from:$line; read key </dev/tty; echo got:$key)\n")
	child := c.readsPID("from:child")
	c.types("k\n")
	c.reads("got:k")
	await.Until(t, patience, func() bool { // dash loses an interrupt that comes while it starts another program
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child))
		return string(name) == "sleep\n"
	})
	c.types("\x03")
	c.reads("prompt>")
}

func TestAChildInAPipelineGetsTheTerminalWhenItAsks(t *testing.T) {
	t.Parallel()
	c := openConsole(t, `echo ask:; read word </dev/tty; echo got:$word`)
	c.types("echo x | $WRAPPER\n")
	c.reads("ask:\r\n")
	c.types("hello\n")
	c.reads("got:hello")
	c.reads("prompt>")
	c.types("echo still:here\n")
	c.reads("\nstill:here")
}

// The child of a pipeline has the terminal, and then another member of the pipeline
// wants it: the job stops, and not one half of it.
func TestNoMemberOfAPipelineStopsTheWrapperAlone(t *testing.T) {
	t.Parallel()
	begun := filepath.Join(t.TempDir(), "begun") // a shell's process takes the terminal for its job when it begins
	turn := filepath.Join(t.TempDir(), "turn")
	c := openConsole(t, `echo child:$$:wrapper:$PPID: >&2; until test -e `+begun+`; do sleep 0.05; done
		read word </dev/tty; touch `+turn+`; exec sleep 1000`)
	c.types("$WRAPPER | (touch " + begun + "; until test -e " + turn + "; do sleep 0.05; done; read key </dev/tty; echo got:$key)\n")
	child, wrapper := c.readsPID("child"), c.readsPID("wrapper")
	c.types("word\n")
	c.reads("Stopped")
	await.Until(t, patience, func() bool { return state(wrapper) == "T" && state(child) == "T" })
	c.types("fg\nkey\n")
	c.reads("got:key")
}

func TestAJobThatComesToTheForegroundCanRead(t *testing.T) {
	t.Parallel()
	for name, background := range map[string]func(c *console){
		"from its start": func(c *console) {
			c.types("$WRAPPER &\n")
			c.reads("ready:")
		},
		"after Ctrl-Z": func(c *console) {
			c.types("$WRAPPER\n")
			c.reads("ready:")
			c.types("\x1a")
			c.reads("Stopped")
			c.types("bg\n")
			c.reads("prompt>")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			turn := filepath.Join(t.TempDir(), "turn")
			require.NoError(t, syscall.Mkfifo(turn, 0o600))
			// Not a loop with sleep: a shell in vfork(2) with a process that is stopped does not stop.
			c := openConsole(t, `echo ready:; read turn <`+turn+`; read word; echo got:$word`)
			background(c)
			shell := c.foreground()
			c.types("fg\n")
			await.Until(t, patience, func() bool { return c.foreground() != shell })
			require.NoError(t, os.WriteFile(turn, []byte("\n"), 0o600))
			c.types("hello\n")
			c.reads("got:hello")
		})
	}
}

func TestAJobThatReadsInTheBackgroundStopsUntilItMay(t *testing.T) {
	t.Parallel()
	c := openConsole(t, `echo child:$$:wrapper:$PPID:; read word; echo got:$word`)
	c.types("$WRAPPER &\n")
	child, wrapper := c.readsPID("child"), c.readsPID("wrapper")
	await.Until(t, patience, func() bool { return state(child) == "T" && state(wrapper) == "T" })
	c.types("fg\nhello\n")
	c.reads("got:hello")
}

// awaitTerminal is for a script that Ctrl-Z is typed for: what reads before it has the terminal is stopped for that,
// and a Ctrl-Z in the instant in which it is let go on is lost. The fields are of proc_pid_stat(5).
const awaitTerminal = `until set -- $(cat /proc/$$/stat) && [ "$5" = "$8" ]; do :; done`

func TestWhatEndsAfterAStopMaySetTheTerminal(t *testing.T) {
	t.Parallel()
	over := filepath.Join(t.TempDir(), "over")
	c := openConsole(t, `trap "stty sane; echo bye; exit 7" TERM; `+awaitTerminal+`; echo ready; read word`)
	c.types("PGLATCH_UNTIL=" + over + " $WRAPPER\n")
	c.reads("ready\r\n")
	c.types("\x1a")
	c.reads("Stopped")
	require.NoError(t, os.WriteFile(over, nil, 0o600))
	c.types("fg\n")
	c.reads("bye")
	c.reads("prompt>")
	c.types("echo code:$?\n")
	c.reads("code:7")
}

func TestTheTerminalIsNotTakenFromAnotherJob(t *testing.T) {
	t.Parallel()
	turn := filepath.Join(t.TempDir(), "turn")
	c := openConsole(t, `echo wrapper:$PPID:; until test -e `+turn+`; do sleep 0.05; done; echo over`)
	c.types("$WRAPPER\n")
	wrapper := c.readsPID("wrapper")
	require.NoError(t, syscall.Kill(wrapper, syscall.SIGSTOP))
	c.reads("Stopped")
	c.reads("prompt>")
	c.types("bg\n")
	c.reads("prompt>")
	require.NoError(t, os.WriteFile(turn, nil, 0o600))
	c.reads("over")
	requireGone(t, wrapper)
	// The first line was being read before. What is looked for is in the answer only: not in the echo of what is typed.
	c.types("echo still:$((20+1))\n")
	c.reads("still:21")
	c.types("echo still:$((20+2))\n")
	c.reads("still:22")
}

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
