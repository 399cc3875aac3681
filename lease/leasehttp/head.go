package leasehttp

import (
	"bytes"
	"net/http"
	"strconv"
)

// plainHead reads the head of an answer the short way: one that is whole, and has no
// header beside those that the lock server sends. At anything else it returns false,
// and net/http decides. size is the length of the head, length that of the body.
func plainHead(data []byte) (size int, a answer, length int, ok bool) {
	end := bytes.Index(data, []byte("\r\n\r\n"))
	if end < 0 {
		return 0, answer{}, 0, false
	}
	if bytes.Count(data[:end], []byte("\n")) != bytes.Count(data[:end], []byte("\r\n")) {
		return 0, answer{}, 0, false
	}
	line, rest, _ := bytes.Cut(data[:end], []byte("\r\n"))
	if a.status, ok = plainStatus(line); !ok {
		return 0, answer{}, 0, false
	}
	for length = -1; len(rest) > 0; {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch string(name) {
		case "Content-Type":
			if string(value) == jsonType { // nearly always, and no copy
				a.contentType = jsonType
			} else {
				a.contentType = string(value)
			}
		case "Content-Length":
			n, err := strconv.ParseUint(string(value), 10, 16)
			if err != nil || length >= 0 {
				return 0, answer{}, 0, false
			}
			length = int(n)
		case "Cache-Control", "Date", "Retry-After", "X-Content-Type-Options":
		default:
			return 0, answer{}, 0, false
		}
	}
	return end + len("\r\n\r\n"), a, length, length >= 0
}

// plainStatus reads a status line; false if an answer of that status may have no body.
func plainStatus(line []byte) (int, bool) {
	code, ok := bytes.CutPrefix(line, []byte("HTTP/1.1 "))
	if !ok || len(code) < 4 || code[3] != ' ' {
		return 0, false
	}
	status, err := strconv.Atoi(string(code[:3]))
	return status, err == nil && status >= http.StatusOK && status != http.StatusNoContent && status != http.StatusNotModified
}
