package pgserver

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"strings"
)

// Options select the server to start. The zero value is a server of any supported version on 127.0.0.1.
type Options struct {
	// Version is the wanted major version, 14 to 18. Zero means PGLATCH_PG_VERSION, and without that any.
	Version int
	// Settings are added to postgresql.conf, after the defaults of this package, which they override.
	Settings map[string]string
	// Host is the address to listen on and the host in DSNs. Empty means 127.0.0.1. With another address than
	// a loopback one, pg_hba.conf trusts every host.
	Host string
	// CommandPrefix precedes the server's command line, for example {"ip", "netns", "exec", "x"}. It must
	// exec the command, so that the process stays the postmaster. Empty means none.
	CommandPrefix []string
	// Env is added to the server's environment, for example {"LD_PRELOAD=/tmp/clock.so"}. Empty means none.
	Env []string
	// OwnSystem gives the server a system identifier of its own. Otherwise it has that of all servers of its
	// installation, which takes less time to make.
	OwnSystem bool
}

func (o Options) withDefaults() (Options, error) {
	o.Host = cmp.Or(o.Host, "127.0.0.1")
	if o.Version != 0 && (o.Version < minMajor || o.Version > maxMajor) {
		return o, fmt.Errorf("pgserver: Options.Version is %d: use %d to %d, or 0 for any", o.Version, minMajor, maxMajor)
	}
	for name, value := range o.Settings {
		if strings.ContainsAny(name, "\n=' ") || strings.Contains(value, "\n") {
			return o, fmt.Errorf("pgserver: Options.Settings[%q] is %q: use a setting's name, and a value on one line", name, value)
		}
	}
	return o, nil
}

func (o Options) loopback() bool {
	ip := net.ParseIP(o.Host)
	return o.Host == "localhost" || (ip != nil && ip.IsLoopback())
}

// settings are the defaults overridden by Options.Settings.
func (o Options) settings() map[string]string {
	s := map[string]string{
		"fsync":              "off",
		"synchronous_commit": "off",
		"full_page_writes":   "off",
		"max_connections":    "300",
		"log_line_prefix":    "%m [%p] %q%u@%d/%a ",
		"log_timezone":       "UTC",
		"timezone":           "UTC",
		// In the data directory, so that it is removed with it.
		"dynamic_shared_memory_type": "mmap",
	}
	maps.Copy(s, o.Settings)
	return s
}
