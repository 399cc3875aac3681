package trace

import "github.com/pglatch/pglatch/leader/shards"

// Shards returns callbacks that write the events of a node and then call those of c.
func (w *Writer) Shards(c shards.Callbacks) shards.Callbacks {
	if w == nil {
		return c
	}
	own := c
	emit := func(kind Kind, s shards.Shard, err error) {
		w.Emit(Event{Kind: kind, Key: s.Name, Term: s.Term.Uint64(), Text: text(err)})
	}
	c.OnAcquired = func(s shards.Shard) { emit(Acquired, s, nil); own.OnAcquired(s) }
	c.OnReleased = func(s shards.Shard) { emit(Released, s, nil); own.OnReleased(s) }
	c.OnLost = func(s shards.Shard, err error) { emit(Lost, s, err); own.OnLost(s, err) }
	c.OnError = func(err error) { emit(Error, shards.Shard{}, err); own.OnError(err) }
	c.OnStopped = func(err error) { emit(Stopped, shards.Shard{}, err); own.OnStopped(err) }
	return c
}
