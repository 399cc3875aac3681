package pgdsn

import (
	"net/url"
	"strconv"
	"strings"
)

// urlError finds what is wrong with a URL that could not be parsed.
func urlError(dsn string) *Error {
	for i := range len(dsn) {
		switch c := dsn[i]; {
		case c <= ' ' || c == 0x7f:
			return &Error{"a space or control character in a URL: percent-encode it (a space is %20)", i + 1}
		case c == '%' && !isEscape(dsn[i:]):
			return &Error{"a % without two hexadecimal digits behind it: a percent sign in a password is %25", i + 1}
		}
	}
	if problem := misreadError(dsn); problem != nil {
		return problem
	}
	_, start, end := authority(dsn)
	at := strings.LastIndexByte(dsn[start:end], '@')
	for i := start; i < start+max(at, 0); i++ {
		if !inUserinfo(dsn[i]) {
			return &Error{"a character that must be percent-encoded in a user name or a password", i + 1}
		}
	}
	if problem := hostsError(dsn[start+at+1:end], start+at+1); problem != nil {
		return problem
	}
	if i := strings.IndexByte(dsn[end:], ';'); i >= 0 {
		return &Error{"a semicolon between settings: use &", end + i + 1}
	}
	return &Error{Problem: "not a URL like postgres://user:password@host:port/database"}
}

// hostsError finds what is wrong with the hosts of a URL, which begin at offset.
func hostsError(hosts string, offset int) *Error {
	for host := range strings.SplitSeq(hosts, ",") {
		name, port := host, ""
		i := strings.LastIndexByte(host, ':')
		switch bracket := strings.LastIndexByte(host, ']'); {
		case strings.HasPrefix(host, "[") != (bracket > 0) || strings.Contains(strings.TrimPrefix(host, "["), "["):
			return &Error{"a bracket that belongs to no IPv6 address: in a user name or a password it must be percent-encoded", offset + 1}
		case i > bracket:
			name, port = host[:i], host[i+1:]
		}
		if port != "" && !isPort(port) {
			return &Error{"a port that is not a number from 1 to 65535", offset + len(name) + 2}
		}
		offset += len(host) + 1
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
	u, start, end := authority(dsn)
	switch first := strings.IndexByte(dsn[start:end], '@'); {
	case first >= 0 && strings.Count(dsn[start:end], "@") > 1:
		return &Error{"more than one @ before the host: in a password it is %40", start + first + 1}
	case first >= 0:
		return nil
	}
	rest := dsn[end:]
	if u != nil {
		beforeValues, _, _ := strings.Cut(u.RawQuery, "=")
		rest = u.Path + u.Fragment + beforeValues
	}
	if strings.Contains(rest, "@") {
		return &Error{"a /, ? or # before the @: in a password they are %2F, %3F and %23", end + 1}
	}
	return nil
}

// authority returns where in a URL the user, password and hosts stand, and the parsed
// URL, nil if it cannot be parsed.
func authority(dsn string) (u *url.URL, start, end int) {
	start = strings.Index(dsn, "://") + len("://")
	end = len(dsn)
	if i := strings.IndexAny(dsn[start:], "/?#"); i >= 0 {
		end = start + i
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return nil, start, end
	}
	return u, start, end
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

// inUserinfo reports whether RFC 3986, section 3.2.1, lets c stand in a user name or a
// password as it is.
func inUserinfo(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._:~!$&'()*+,;=%@", c) >= 0
}
