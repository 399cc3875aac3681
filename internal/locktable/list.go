package locktable

// A list is a queue with O(1) removal from its middle.
type list[T any] struct{ first, last *node[T] }

// A node is an element's place in a list. The element itself contains it.
type node[T any] struct {
	of            *T
	before, after *node[T]
	in            bool
}

// push appends an element by its node.
func (l *list[T]) push(n *node[T], of *T) {
	*n = node[T]{of: of, before: l.last, in: true}
	if l.last == nil {
		l.first = n
	} else {
		l.last.after = n
	}
	l.last = n
}

// remove removes a node, and reports whether it was in the list.
func (l *list[T]) remove(n *node[T]) bool {
	if !n.in {
		return false
	}
	if n.before == nil {
		l.first = n.after
	} else {
		n.before.after = n.after
	}
	if n.after == nil {
		l.last = n.before
	} else {
		n.after.before = n.before
	}
	*n = node[T]{}
	return true
}

// peek is the first element, or nil.
func (l *list[T]) peek() *T {
	if l.first == nil {
		return nil
	}
	return l.first.of
}

// top is the last element, or nil.
func (l *list[T]) top() *T {
	if l.last == nil {
		return nil
	}
	return l.last.of
}

// slice returns the elements, for a loop that can move any of them.
func (l *list[T]) slice() (all []*T) {
	for e := range l.all {
		all = append(all, e)
	}
	return all
}

// all yields the elements. The loop may remove the current one.
func (l *list[T]) all(yield func(*T) bool) {
	for n := l.first; n != nil; {
		after := n.after
		if !yield(n.of) {
			return
		}
		n = after
	}
}
