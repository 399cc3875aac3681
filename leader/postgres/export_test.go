package postgres

// PretendStale makes the backend take another's session for its own from before.
func (b *Backend) PretendStale(other *Backend) {
	b.stale = &serverSession{other.current.pid, other.current.backendStart, "of before"}
}
