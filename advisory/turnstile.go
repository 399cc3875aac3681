package advisory

import (
	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/namespace"
)

// turnstile is the lock that whoever waits for the key takes first, in the mode in which it
// wants the key, and keeps until it has that, under mu. A wait at the server goes in steps,
// and who waits loses its place in the server's queue after each: while it has the turnstile
// nobody else waits before it, and no reader comes in, because those pass it.
func (k *key) turnstile() namespace.Tag {
	if !k.gateTag.Valid() { // a semaphore has that of its key
		k.gateTag = turnstile.Of(k.tag)
	}
	return k.gateTag
}
