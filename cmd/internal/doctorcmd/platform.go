package doctorcmd

import "runtime"

// platform reports which parts of pglatch work differently on this system.
func (e *examination) platform() {
	status, detail := platformOf(runtime.GOOS)
	e.note("platform", status, "%s/%s: %s", runtime.GOOS, runtime.GOARCH, detail)
}

// platformOf summarizes the files _other.go: docs/reference/platforms.md.
func platformOf(system string) (severity, string) {
	const clock = "only compiled by CI, not tested; a holder's deadline may outlast a suspension of this machine, so guard writes with terms or tokens"
	switch system {
	case "linux":
		return ok, "what CI tests"
	case "windows":
		return warn, clock + "; run, lease run and leader run cannot run a command (exit code 125)"
	}
	return warn, clock + "; a command of run, lease run and leader run keeps running when pglatch itself is killed, and Ctrl-Z stops only pglatch"
}
