package monitor

import (
	"net/http"
	"path"
)

// acts reports whether a request is for Config.Actions: it is for a file in a directory of that name.
func (m *Monitor) acts(r *http.Request) bool {
	dir, name := path.Split(r.URL.Path)
	return m.config.Actions != nil && name != "" && path.Base(dir) == "actions"
}
