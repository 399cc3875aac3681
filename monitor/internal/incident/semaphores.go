package incident

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// groupSemaphores makes one key of each semaphore, whose slots are in the rows.
func (b *builder) groupSemaphores(all []said) {
	for _, s := range all {
		for _, l := range s.answer.Locks {
			if l.Semaphore != "" && !hidden(l.Semaphore) { // otherwise two semaphores would look like one
				k := b.semaphore(l.Semaphore, l.Tag)
				b.keys[l.Tag] = k
				if l.Slots > k.Slots {
					k.Slots = l.Slots
					for _, t := range slotsOf(&l) {
						b.keys[t] = k // a session that no process answers for may hold it
					}
				}
			}
		}
		for _, w := range s.answer.Waits {
			if w.Semaphore {
				k := b.semaphore(w.Key+strings.Repeat("@"+w.Tag.String(), b2i(hidden(w.Key))), w.Tag)
				k.Tag, k.ID, k.Slots = w.Tag, b.in.ID(w.Tag), max(k.Slots, len(w.Slots))
				for _, t := range append(slices.Clone(w.Slots), w.Tag) {
					b.keys[t] = k
				}
			}
		}
	}
}

// slotsOf returns all slots of the semaphore that l is a slot of, as AcquireSlot derives them.
func slotsOf(l *introspect.Lock) (tags []namespace.Tag) {
	number, _ := l.Tag.NamespaceNumber()
	n, err := namespace.New(number, namespaceOf(l.Semaphore))
	if err != nil {
		return nil
	}
	set, err := namespace.NewSet(n)
	if err != nil {
		return nil
	}
	key, err := set.Parse(l.Semaphore)
	for i := 0; i < l.Slots && err == nil; i++ {
		var slot namespace.Key
		slot, err = key.Companion("slot" + strconv.Itoa(i))
		tags = append(tags, slot.Tag())
	}
	if !slices.Contains(tags, l.Tag) {
		return nil // its namespace has another name here
	}
	return tags
}

func (b *builder) semaphore(text string, tag namespace.Tag) *Key {
	k := b.semas[text]
	if k == nil {
		name, _, _ := strings.Cut(text, "@")
		k = &Key{Tag: tag, ID: b.in.ID(tag), Kind: Semaphore, Namespace: namespaceOf(text)}
		k.Text, k.Shown = b.in.Text(tag, name)
		b.semas[text] = k
		b.out.Keys = append(b.out.Keys, k)
	}
	return k
}
