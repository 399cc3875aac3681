package activeserver

import (
	"fmt"
	"log/slog"
	"net/url"

	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/driver"
	"github.com/pglatch/pglatch/leader/leased"
	"github.com/pglatch/pglatch/namespace"
)

// SessionKey is the session lock by which the lock servers of a database elect the active one: the pair
// (-32767, 1). It belongs to no namespace, because the numbers of namespaces are above 0. Use it for
// Config.Session.
var SessionKey = namespace.Pair(-namespace.MaxNumber, 1)

// MaxURL is the maximum length of Config.URL in bytes. A session's application_name contains the URL, and a
// suffix that distinguishes two processes with one URL. PostgreSQL truncates longer names.
const MaxURL = 58

// A Config describes one server's part in the election. URL and Store are required.
type Config struct {
	// URL is where the other servers reach this one: a scheme and a host, such as
	// https://locks-1.example:8443. MaxURL bytes at most.
	URL string

	// Store is the store of the servers. A lease in it elects the active one.
	Store leased.Store

	// Session is used for the election in place of the lease: a backend of leader/postgres with Key
	// SessionKey and NoTerms. If its first attempt fails permanently, as behind a pooler in transaction
	// mode, the lease is used. nil = the lease.
	Session leader.Backend

	// Logger receives the log of the election. nil = nothing is logged.
	Logger *slog.Logger
}

func (c Config) validated() (Config, error) {
	u, err := url.Parse(c.URL)
	switch {
	case err != nil, u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.User != nil, u.RawQuery != "", u.Fragment != "", u.Path != "" && u.Path != "/":
		return c, wrong("URL", fmt.Sprintf("%q", c.URL), "use a scheme and a host, such as https://locks-1.example:8443")
	case len(c.URL) > MaxURL:
		return c, wrong("URL", fmt.Sprintf("%d bytes", len(c.URL)), fmt.Sprintf("use %d at most", MaxURL))
	case c.Store == nil:
		return c, wrong("Store", "nil", "pass that of the servers")
	}
	c.Logger = background.Logger(c.Logger)
	return c, nil
}

func wrong(field, value, remedy string) error {
	return &driver.ConfigError{Field: field, Value: value, Remedy: remedy}
}
