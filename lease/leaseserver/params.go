package leaseserver

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/wire"
)

// lockName returns the lock of a route.
func lockName(r *http.Request) (string, error) {
	name := r.PathValue(paramLock)
	return name, lease.ValidateName(name)
}

// wait returns how long the request will wait for the lock.
func (s *Server) wait(rawQuery string) (time.Duration, error) {
	if rawQuery == "" {
		return 0, nil
	}
	query, err := parseQuery(rawQuery, "wait")
	if err != nil {
		return 0, err
	}
	return s.parseWait(query.Get("wait"))
}

// watchOf returns the index of a request that watches, and how long it waits for another version.
func (s *Server) watchOf(rawQuery string) (index uint64, wait time.Duration, err error) {
	if rawQuery == "" {
		return 0, 0, nil
	}
	query, err := parseQuery(rawQuery, "wait", "index")
	if err != nil {
		return 0, 0, err
	}
	if text := query.Get("index"); text != "" {
		if index, err = strconv.ParseUint(text, 10, 64); errors.Is(err, strconv.ErrRange) {
			return 0, 0, &lease.InvalidError{Field: "Index", Value: strconv.Quote(text), Remedy: "give the version of an answer"}
		} else if err != nil {
			return 0, 0, wire.Refuse(wire.TypeInvalid, "index is no version of an answer")
		}
	}
	wait, err = s.parseWait(query.Get("wait"))
	return index, wait, err
}

func (s *Server) parseWait(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	wait, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, wire.Refuse(wire.TypeInvalid, "wait is no duration such as 10s")
	case wait < 0:
		return 0, &lease.InvalidError{Field: "Wait", Value: wait.String(), Remedy: "use 0s or more"}
	}
	return min(wait, s.MaxWait), nil
}

// parseQuery refuses unknown and repeated parameters.
func parseQuery(raw string, known ...string) (url.Values, error) {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return nil, wire.Refuse(wire.TypeInvalid, "the query is not escaped as a URL must be")
	}
	for name, values := range query {
		if len(values) > 1 || !slices.Contains(known, name) {
			return nil, wire.Refuse(wire.TypeInvalid, "the only query parameters, once each, are: "+strings.Join(known, ", "))
		}
	}
	return query, nil
}
