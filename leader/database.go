package leader

import "github.com/pglatch/pglatch/leader/driver"

// Database returns the database that stores the election, as "db-1:5432/shop", or "" if the backend names
// none. It uses the spelling of the connection string: nodes of one election that reach it by different names
// return different results.
func (e *Elector) Database() string {
	if b, ok := e.backend.(driver.Located); ok {
		return b.Database()
	}
	return ""
}
