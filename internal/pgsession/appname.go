package pgsession

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
)

const (
	maxName  = 63 // bytes of an application_name that PostgreSQL keeps
	nameHead = 28
	cut      = "..."
)

// ProcessName names this process for observers of its sessions, as "billing@web-3": its program
// without the path, and its host.
func ProcessName() string {
	host, _ := os.Hostname() // "" is as uninformative as "localhost"
	program := ""
	if len(os.Args) > 0 {
		program = os.Args[0]
	}
	return processName(program, host)
}

func processName(program, host string) string {
	if program != "" { // Base would return "." for it
		program = strings.TrimSuffix(filepath.Base(program), ".exe")
	}
	name := cmp.Or(program, "pglatch")
	if host != "" {
		name += "@" + host
	}
	return ApplicationName(name)
}

// ApplicationName returns a name as PostgreSQL shows it. Bytes other than printable ASCII become
// "?", as in PostgreSQL. A long name loses its middle, because its ends distinguish it: a program
// or a host, and a number or a random suffix.
func ApplicationName(name string) string {
	b := []byte(name)
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = '?'
		}
	}
	if len(b) <= maxName {
		return string(b)
	}
	return string(b[:nameHead]) + cut + string(b[len(b)-(maxName-nameHead-len(cut)):])
}
