package pgserver

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// watchdogScript reads the postmaster's process id, one line for each start and 0 for each stop, until the
// pipe closes. Then it stops the processes that still run and frees the System V segment of a killed server,
// whose id is in the seventh line of postmaster.pid. Finally it removes the directory.
const watchdogScript = `
trap '' HUP INT TERM
pid=0
while read -r line; do pid=$line; done
if [ "$pid" -gt 0 ]; then
	kill -QUIT "$pid"; kill -CONT "$pid"
	n=0
	while kill -0 "$pid" && [ "$n" -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
	kill -KILL "$pid"
fi
dir=$1
if [ -s "$dir/data/postmaster.pid" ]; then
	set -- $(sed -n 7p "$dir/data/postmaster.pid")
	[ -n "$2" ] && ipcrm -m "$2"
fi
rm -rf "$dir"
`

// A watchdog outlives this process until it has cleaned up.
type watchdog struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

func newWatchdog(dir string) (*watchdog, error) {
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "pglatch-watchdog", dir) //nolint:noctx // it must outlive every context
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	return &watchdog{cmd: cmd, pipe: pipe}, nil
}

func (w *watchdog) watch(pid int) error {
	_, err := fmt.Fprintln(w.pipe, pid)
	return err
}

// clean makes the watchdog clean up and waits for it.
func (w *watchdog) clean() error {
	if err := w.pipe.Close(); err != nil {
		return err
	}
	return w.cmd.Wait()
}
