package sqlite

// rowOverhead is about the size of a row besides its texts: the struct, its entry in the map, and
// the headers of its metadata.
const rowOverhead = 512

// A cache keeps rows as the file has them. It belongs to the writer, which adds committed rows, and
// empties it if it does not know what was committed.
type cache struct {
	rows  map[string]*record
	bytes int
	limit int
}

func newCache(limit int) *cache { return &cache{rows: make(map[string]*record), limit: limit} }

func (c *cache) get(name string) *record { return c.rows[name] }

func (c *cache) put(row *record) {
	c.drop(row.Name)
	c.rows[row.Name] = row
	c.bytes += size(row)
	for name := range c.rows { // in no order: any may go
		if c.bytes <= c.limit {
			return
		}
		c.drop(name)
	}
}

func (c *cache) drop(name string) {
	if row := c.rows[name]; row != nil {
		c.bytes -= size(row)
		delete(c.rows, name)
	}
}

func (c *cache) clear() {
	clear(c.rows)
	c.bytes = 0
}

func size(row *record) int {
	n := rowOverhead + len(row.Name) + len(row.Holder) + len(row.ID) + len(row.IdempotencyKey)
	for key, value := range row.Metadata {
		n += 64 + len(key) + len(value)
	}
	return n
}
