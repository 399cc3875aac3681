package leader

import "github.com/pglatch/pglatch/leader/driver"

// Database names the database that has the election, as "db-1:5432/shop"; "" if the backend names none. It
// is as the connection string spells it: nodes of one election that reach it by different names differ.
func (e *Elector) Database() string {
	if b, ok := e.backend.(driver.Located); ok {
		return b.Database()
	}
	return ""
}
