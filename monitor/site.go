package monitor

import (
	"context"
	"maps"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/monitor/internal/web"
)

// A LockServer is a lock server whose health and leases a Site shows.
type LockServer struct {
	Name   string      // unique among the databases and lock servers of the Site, spelled as Config.Name
	Leases LeaseLister // a *leasehttp.Client, or another store
}

// AddLockServers adds lock servers to the list, before the first request. The Site reads each of them at most once a
// second, and only while it has viewers. A server that does not answer within 1.5 s is shown as down, and does not delay
// the others. After an error, a *ConfigError, no server has been added.
func (s *Site) AddLockServers(servers ...LockServer) error {
	names := maps.Clone(s.names)
	for _, server := range servers {
		if !validName.MatchString(server.Name) || names[server.Name] {
			return &ConfigError{"Name", strconv.Quote(server.Name), "give each lock server a name of its own, as to a database"}
		}
		if server.Leases == nil {
			return &ConfigError{"Leases", "nil", "give the lock server " + server.Name + " a client, or a store"}
		}
		names[server.Name] = true
	}
	s.names = names
	for _, server := range servers {
		s.site.Add(web.LockServer{Name: server.Name, List: func(ctx context.Context, r lease.ListRequest) web.Records { return server.Leases.List(ctx, r) }})
	}
	return nil
}

// A Site serves the pages of several databases: a list with the health and the problems of each, and the Page of
// each below its Config.Name. A database that does not answer delays none of the others.
type Site struct {
	monitors []*Monitor
	names    map[string]bool
	pages    map[string]http.Handler
	site     *web.Site
}

// NewSite returns the Site of some Monitors, each with a Config.Name of its own. The caller closes them, after the
// last request. The list is shown only if Config.Authorize of every Monitor admits the request.
func NewSite(monitors ...*Monitor) (*Site, error) {
	s := &Site{monitors: monitors, names: map[string]bool{}, pages: map[string]http.Handler{}}
	var all []web.Database
	for _, m := range monitors {
		name := m.config.Name
		if _, twice := s.pages[name]; twice || name == "" {
			return nil, &ConfigError{"Name", strconv.Quote(name), "give each database of a Site a name of its own"}
		}
		s.names[name] = true
		page, list := m.page("../"), m.Handler()
		s.pages[name] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, Path) {
				list.ServeHTTP(w, r)
				return
			}
			page.ServeHTTP(w, r)
		})
		all = append(all, web.Database{Name: name, Look: m.state})
	}
	s.site = web.NewSite(all, func(w http.ResponseWriter, status int, detail string) { refuse(w, status, 0, detail) })
	return s, nil
}

// ServeHTTP serves the list at any path that ends in a slash, stripped or not, and the Page of each database below
// its name. The last element of that path must not be the name of a database. Below the list are also two files
// for all databases: verdicts, a list in JSON, and metrics, for Prometheus.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	dir := strings.TrimSuffix(strings.TrimSuffix("/"+r.URL.Path, Path), "/")
	if !strings.HasSuffix(r.URL.Path, "/") && dir == strings.TrimSuffix("/"+r.URL.Path, "/") {
		dir = path.Dir(dir)
	}
	page := s.pages[path.Base(dir)]
	if page == nil && path.Base(dir) == "actions" {
		page = s.pages[path.Base(path.Dir(dir))]
	}
	if page != nil {
		page.ServeHTTP(w, r)
		return
	}
	setSecurityHeaders(w.Header())
	for _, m := range s.monitors {
		if err := m.config.Authorize(r, ActionView); err != nil {
			refuse(w, http.StatusForbidden, 0, err.Error())
			return
		}
	}
	s.site.ServeHTTP(w, r)
}
