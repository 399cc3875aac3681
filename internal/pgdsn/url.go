package pgdsn

import (
	"strconv"
	"strings"
)

// A layout is where the parts of a URL stand, as libpq and pgx take it apart: what
// stands before the first @, if no / comes before that, is the user and the password.
type layout struct {
	user     bool // there is a user
	hosts    int  // the hosts and ports begin
	path     int  // they end, and the database begins
	settings int  // the database ends, and ?key=value begins
}

func layoutOf(dsn string) layout {
	var l layout
	l.hosts = strings.Index(dsn, "://") + len("://")
	if i := strings.IndexAny(dsn[l.hosts:], "@/"); i >= 0 && dsn[l.hosts+i] == '@' {
		l.user = true
		l.hosts += i + 1
	}
	l.path = indexFrom(dsn, l.hosts, "/?")
	l.settings = indexFrom(dsn, l.path, "?")
	return l
}

// indexFrom returns where one of chars stands at or after from, or the end.
func indexFrom(s string, from int, chars string) int {
	if i := strings.IndexAny(s[from:], chars); i >= 0 {
		return from + i
	}
	return len(s)
}

// urlError finds what is wrong with a URL that could not be parsed.
func urlError(dsn string) *Error {
	for i := range len(dsn) {
		switch c := dsn[i]; {
		case c == ' ':
			return &Error{"a space in a URL: it is %20", i + 1}
		case c == '%' && !isEscape(dsn[i:]):
			return &Error{"a % without two hexadecimal digits behind it: a percent sign in a password is %25", i + 1}
		}
	}
	if problem := misreadError(dsn); problem != nil {
		return problem
	}
	l := layoutOf(dsn)
	if problem := hostsError(dsn[l.hosts:l.path], l.hosts); problem != nil {
		return problem
	}
	if problem := settingsError(dsn[l.settings:], l.settings); problem != nil {
		return problem
	}
	return &Error{Problem: "not a URL like postgres://user:password@host:port/database"}
}

// hostsError finds what is wrong with the hosts of a URL, which begin at offset.
func hostsError(hosts string, offset int) *Error {
	for host := range strings.SplitSeq(hosts, ",") {
		name, port := host, ""
		if i := strings.LastIndexByte(host, ':'); i > strings.LastIndexByte(host, ']') {
			name, port = host[:i], host[i+1:]
		}
		if strings.HasPrefix(name, "[") && (len(name) < 3 || strings.IndexByte(name, ']') != len(name)-1) {
			return &Error{"an IPv6 address without its closing bracket, or with something behind it", offset + 1}
		}
		if port != "" && !isPort(port) {
			return &Error{"a port that is not a number from 1 to 65535", offset + len(name) + 2}
		}
		offset += len(host) + 1
	}
	return nil
}

// settingsError finds a setting of a URL that is not key=value; they begin at offset,
// with a question mark.
func settingsError(settings string, offset int) *Error {
	if settings == "" {
		return nil
	}
	offset++
	for pair := range strings.SplitSeq(settings[1:], "&") {
		if pair != "" && strings.Count(pair, "=") != 1 {
			return &Error{"a setting that is not key=value: settings are divided by &, and = in a value is %3D", offset + 1}
		}
		offset += len(pair) + 1
	}
	return nil
}

// misreadError finds a password that is cut in two by a character in it that should
// be percent-encoded. Such a URL can parse, as one whose host, port or database holds
// the other half, and that half would then be shown.
func misreadError(dsn string) *Error {
	if !isURL(dsn) {
		return nil
	}
	l := layoutOf(dsn)
	switch {
	case l.user && strings.Contains(dsn[l.hosts:l.path], "@"):
		return &Error{"more than one @ before the host: in a password it is %40", l.hosts}
	case strings.Contains(dsn[l.path:l.settings], "@"):
		return &Error{"a / before the @: in a password it is %2F, and @ in a database's name is %40", l.path + 1}
	}
	return nil
}

func isEscape(s string) bool {
	if len(s) < 3 {
		return false
	}
	_, err := strconv.ParseUint(s[1:3], 16, 8)
	return err == nil
}

func isPort(s string) bool {
	n, err := strconv.ParseUint(s, 10, 16)
	return err == nil && n > 0
}
