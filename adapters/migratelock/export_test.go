package migratelock

// LockLost returns why the lock was lost, as far as this process knows.
func (d *Driver) LockLost() error { return d.lost() }
