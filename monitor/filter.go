package monitor

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A filter keeps the locks for which all its conditions hold.
type filter []func(Lock) bool

// parseFilter reads the query of a request. Its errors are for the client: a
// misspelt filter must not pass for "nothing is locked".
func parseFilter(rawQuery string) (filter, error) {
	values, err := url.ParseQuery(rawQuery)
	if err != nil {
		return nil, fmt.Errorf("the query cannot be read: %w", err)
	}
	var f filter
	for name, given := range values {
		if len(given) != 1 || given[0] == "" {
			return nil, fmt.Errorf("filter %q: give it once and not empty", name)
		}
		condition, err := parseCondition(name, given[0])
		if err != nil {
			return nil, err
		}
		f = append(f, condition)
	}
	return f, nil
}

func parseCondition(name, value string) (func(Lock) bool, error) {
	switch name {
	case "namespace":
		return func(l Lock) bool { return l.Namespace != nil && *l.Namespace == value }, nil
	case "q":
		value = strings.ToLower(value)
		return func(l Lock) bool {
			has := func(s string) bool { return strings.Contains(strings.ToLower(s), value) }
			return has(l.ApplicationName) || has(l.Key.Text) || l.Namespace != nil && has(*l.Namespace)
		}, nil
	case "state":
		if value != "held" && value != "waiting" {
			return nil, fmt.Errorf("filter state=%q: use held or waiting", value)
		}
		return func(l Lock) bool { return l.Granted == (value == "held") }, nil
	case "pid":
		pid, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("filter pid=%q: use the decimal number of a process", value)
		}
		return func(l Lock) bool { return uint64(l.PID) == pid }, nil
	}
	return nil, fmt.Errorf("unknown filter %q: use namespace, q, state or pid", name)
}

// apply leaves the matching locks in s, which is the caller's own.
func (f filter) apply(s *Snapshot) {
	s.Locks = slices.DeleteFunc(s.Locks, func(l Lock) bool {
		return slices.ContainsFunc(f, func(condition func(Lock) bool) bool { return !condition(l) })
	})
	s.Total = len(s.Locks)
}
