package postgres

// Haunt makes the backend believe that another's session is its own from before.
func (b *Backend) Haunt(other *Backend) {
	b.ghost = &ghost{other.seat.pid, other.seat.backendStart, "of before"}
}
