package monitor

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// A filter keeps the locks for which all its conditions hold.
type filter []func(*Lock) bool

// parseQuery reads the query of a request. Its errors are for the client: a misspelt filter must
// not look like "nothing is locked".
func parseQuery(rawQuery string) (f filter, p page, err error) {
	p.limit = defaultLimit
	values, err := url.ParseQuery(rawQuery)
	if err != nil {
		return nil, p, fmt.Errorf("the query cannot be read: %w", err)
	}
	for name, given := range values {
		if len(given) != 1 || given[0] == "" {
			return nil, p, fmt.Errorf("filter %q: give it once and not empty", name)
		}
		var condition func(*Lock) bool
		switch name {
		case "limit":
			if p.limit, err = strconv.Atoi(given[0]); err != nil || p.limit < 1 || p.limit > maxLimit {
				err = fmt.Errorf("limit=%q: use 1 to %d", given[0], maxLimit)
			}
		case "after":
			p.after, err = parsePosition(given[0])
		default:
			condition, err = parseCondition(name, given[0])
			f = append(f, condition)
		}
		if err != nil {
			return nil, p, err
		}
	}
	return f, p, nil
}

func parseCondition(name, value string) (func(*Lock) bool, error) {
	switch name {
	case "namespace":
		return func(l *Lock) bool { return l.Namespace != nil && *l.Namespace == value }, nil
	case "q":
		value = strings.ToLower(value)
		return func(l *Lock) bool {
			has := func(s string) bool { return strings.Contains(strings.ToLower(s), value) }
			return has(l.ApplicationName) || has(l.Key.Text) || l.Namespace != nil && has(*l.Namespace)
		}, nil
	case "state":
		if value != "held" && value != "waiting" {
			return nil, fmt.Errorf("filter state=%q: use held or waiting", value)
		}
		return func(l *Lock) bool { return l.Granted == (value == "held") }, nil
	case "pid":
		pid, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return nil, fmt.Errorf("filter pid=%q: use the decimal number of a process", value)
		}
		return func(l *Lock) bool { return uint64(l.PID) == pid }, nil
	}
	return nil, fmt.Errorf("unknown filter %q: use namespace, q, state, pid, limit or after", name)
}

// matches reports whether all conditions hold.
func (f filter) matches(l *Lock) bool {
	return !slices.ContainsFunc(f, func(condition func(*Lock) bool) bool { return !condition(l) })
}
