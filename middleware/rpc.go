package middleware

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ErrorDomain is the domain of the google.rpc.ErrorInfo of a refusal.
const ErrorDomain = "pglatch"

// codes are the codes of gRPC, which connect uses too, by statuses of HTTP.
var codes = map[int]uint32{
	http.StatusBadRequest:            3,  // InvalidArgument
	http.StatusUnauthorized:          16, // Unauthenticated
	http.StatusForbidden:             7,  // PermissionDenied
	http.StatusNotFound:              5,  // NotFound
	http.StatusConflict:              10, // Aborted
	http.StatusPreconditionFailed:    9,  // FailedPrecondition
	http.StatusRequestEntityTooLarge: 3,  // InvalidArgument
	http.StatusUnprocessableEntity:   3,  // InvalidArgument
	http.StatusLocked:                10, // Aborted
	http.StatusTooManyRequests:       8,  // ResourceExhausted
	http.StatusInternalServerError:   13, // Internal
	http.StatusNotImplemented:        12, // Unimplemented
	http.StatusServiceUnavailable:    14, // Unavailable
	http.StatusGatewayTimeout:        4,  // DeadlineExceeded
}

// Code returns the refusal's status code of gRPC and connect:
//
//	busy (423)                      Aborted (10), which is for concurrency, with RetryInfo; the call did nothing
//	the lock was lost               Aborted (10), without: its outcome is not known
//	no free connection, unavailable Unavailable (14), with RetryInfo; the call did nothing
//	refused, misuse                 Internal (13)
//	no entity                       InvalidArgument (3)
//	*RequestError                   by its status: 401 Unauthenticated, 404 NotFound, 429 ResourceExhausted, …; else Unknown (2)
//
// A BusyStatus of 429 makes busy ResourceExhausted, and one of 503 Unavailable. Neither is
// the default: clients and proxies count Unavailable as a failure of the server, and many send
// such a call again by themselves. For that a lost lock is not Unavailable either.
func (p *ProblemError) Code() uint32 {
	if p.Type == TypeLost {
		return codes[http.StatusConflict]
	}
	if code, ok := codes[p.Status]; ok {
		return code
	}
	return 2
}

// Reason is that of a google.rpc.ErrorInfo: "LOCK_BUSY" for TypeBusy, and so on; the
// status's text if the type says no more.
func (p *ProblemError) Reason() string {
	name := p.Type[strings.LastIndexByte(p.Type, '/')+1:]
	if p.Type == typeBlank {
		name = http.StatusText(p.Status)
	}
	return strings.ToUpper(strings.NewReplacer("-", "_", " ", "_", "'", "_").Replace(name))
}

// Metadata is that of a google.rpc.ErrorInfo: the type, and as far as they are told, the
// namespace, the entity, and holder_pid, holder_application_name and holder_client_addr. All
// are UTF-8, as the encoding of messages demands.
func (p *ProblemError) Metadata() map[string]string {
	m := map[string]string{"type": p.Type, "namespace": p.Namespace, "entity": p.Entity}
	if h := p.Holder; h != nil {
		m["holder_pid"] = strconv.FormatUint(uint64(h.PID), 10)
		m["holder_application_name"], m["holder_client_addr"] = h.ApplicationName, h.ClientAddr
	}
	for name, value := range m {
		if m[name] = strings.ToValidUTF8(value, "\uFFFD"); value == "" {
			delete(m, name)
		}
	}
	return m
}

// Retry is that of a google.rpc.RetryInfo: after how long to send the call again, which did
// nothing. 0 = do not, also because a lock was lost and the outcome is not known.
func (p *ProblemError) Retry() time.Duration {
	if p.Type == TypeLost {
		return 0
	}
	return p.retryAfter()
}

// Message is what the status of an RPC says.
func (p *ProblemError) Message() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Title + ": " + p.Detail
}
