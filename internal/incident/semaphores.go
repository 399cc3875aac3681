package incident

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pglatch/pglatch/namespace"
)

// maxSlots is the largest number of slots of a semaphore.
const maxSlots = 1000

// groupSemaphores makes one key of each semaphore, whose slots and turnstile are in the rows. A lock on the
// semaphore's own key is independent of it, and has another Key.
func (b *builder) groupSemaphores(all []said) {
	for _, own := range b.in.Known {
		if slots := slotsOf(own, maxSlots); slots != nil {
			b.join(b.semaphore(own.String(), own.Tag()), own, own.Tag(), slots)
		}
	}
	for _, s := range all {
		for _, l := range s.answer.Locks {
			if l.Semaphore == "" || Hidden(l.Semaphore) { // no slot says which other slots belong to it
				continue
			}
			k := b.semaphore(l.Semaphore, l.Tag)
			b.keys[l.Tag] = k
			if l.Slots > k.Slots {
				k.Slots = l.Slots
				// A session that no process answers for may hold another slot, unless the namespace has another name here.
				own := named(l.Semaphore, l.Tag)
				if slots := slotsOf(own, l.Slots); slices.Contains(slots, l.Tag) {
					b.join(k, own, own.Tag(), slots)
				}
			}
		}
		for _, w := range s.answer.Waits {
			if w.Semaphore {
				k := b.semaphore(w.Key, w.Tag)
				k.Slots = max(k.Slots, len(w.Slots))
				b.join(k, named(w.Key, w.Tag), w.Tag, w.Slots)
			}
		}
	}
}

// named returns the key that a process calls text, in the namespace of one of its locks; the zero Key if it has none.
func named(text string, lock namespace.Tag) (key namespace.Key) {
	number, _ := lock.NamespaceNumber()
	name, entity, _ := strings.Cut(text, "/")
	if n, err := namespace.New(number, name); err == nil {
		key, _ = n.Text(entity)
	}
	return key
}

// slotsOf returns the first slots of the semaphore on own, as AcquireSlot derives them; nil = own is a raw key.
func slotsOf(own namespace.Key, n int) (tags []namespace.Tag) {
	for i := range n {
		slot, err := own.Companion("slot" + strconv.Itoa(i))
		if err != nil {
			return nil
		}
		tags = append(tags, slot.Tag())
	}
	return tags
}

// join makes k the key of a semaphore's slots and of its turnstile. own is the semaphore's own key, as far as
// its name is known, and tag is its lock, which nobody holds.
func (b *builder) join(k *Key, own namespace.Key, tag namespace.Tag, slots []namespace.Tag) {
	k.Tag = tag
	for i, t := range slots {
		if b.keys[t] = k; i == 0 {
			k.ID = b.in.ID(t) // the same whoever holds it or waits
		}
	}
	if gate, err := own.Companion("turnstile"); err == nil {
		k.gate = gate.Tag()
		b.keys[k.gate] = k
	}
}

// semaphore returns the semaphore that a process calls text, and creates it if necessary.
func (b *builder) semaphore(text string, tag namespace.Tag) *Key {
	id := text
	if Hidden(text) { // otherwise two semaphores would look like one
		id = tag.String()
	}
	k := b.semas[id]
	if k == nil {
		k = &Key{Tag: tag, ID: b.in.ID(tag), Kind: Semaphore, Namespace: namespaceOf(text)}
		k.Text, k.Shown = b.in.Text(tag, text)
		b.semas[id] = k
		b.out.Keys = append(b.out.Keys, k)
	}
	return k
}
