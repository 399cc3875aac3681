package postgres

import (
	"fmt"

	"github.com/pglatch/pglatch/leader/driver"
)

var _ driver.Located = (*Backend)(nil)

// Database implements driver.Located. It returns the first host of the connection string, its port and the
// database.
func (b *Backend) Database() string {
	cc := b.config.ConnConfig
	return fmt.Sprintf("%s:%d/%s", cc.Host, cc.Port, cc.Database)
}
