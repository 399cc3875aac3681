package overview

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/namespace"
)

// ProcessName returns the name of a process for people.
func ProcessName(p introspect.Process) string {
	return p.Service + "@" + p.Host + ":" + strconv.Itoa(p.PID)
}

// Namespaces returns the namespaces of the keys that the processes reported. It omits names that
// processes use for different numbers, and numbers with several names, because they are ambiguous.
func Namespaces(a introspect.Answers) *namespace.Set {
	numbers, names := map[string][]int{}, map[int][]string{}
	for i := range a.Answers {
		for text, tag := range keys(&a.Answers[i]) {
			name, _, ok := strings.Cut(text, "/")
			number, numbered := tag.NamespaceNumber()
			if ok && numbered && !slices.Contains(numbers[name], number) {
				numbers[name], names[number] = append(numbers[name], number), append(names[number], name)
			}
		}
	}
	var all []namespace.Namespace
	for name, n := range numbers {
		if len(n) > 1 || len(names[n[0]]) > 1 {
			continue
		}
		if valid, err := namespace.New(n[0], name); err == nil {
			all = append(all, valid)
		}
	}
	set, _ := namespace.NewSet(all...) // they are distinct
	return set
}

// keys yields the keys in an answer.
func keys(a *introspect.Answer) func(func(string, namespace.Tag) bool) {
	return func(yield func(string, namespace.Tag) bool) {
		for _, l := range a.Locks {
			if !yield(l.Key, l.Tag) {
				return
			}
		}
		for _, w := range a.Waits {
			if !yield(w.Key, w.Tag) {
				return
			}
		}
		for _, e := range a.Elections {
			if len(e.Tags) > 0 && !yield(e.Key, e.Tags[0]) {
				return
			}
		}
	}
}
