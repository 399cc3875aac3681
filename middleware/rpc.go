package middleware

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ErrorDomain is the domain of the google.rpc.ErrorInfo of a refusal.
const ErrorDomain = "pglatch"

// codes maps HTTP statuses to codes of gRPC, which Connect uses too.
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
// With a BusyStatus of 429, busy becomes ResourceExhausted, and with 503 Unavailable. Neither is
// the default: clients and proxies count Unavailable as a failure of the server, and many resend
// such a call on their own. For the same reason a lost lock is not Unavailable.
func (p *ProblemError) Code() uint32 {
	if p.Type == TypeLost {
		return codes[http.StatusConflict]
	}
	if code, ok := codes[p.Status]; ok {
		return code
	}
	return 2
}

// Reason returns the reason for a google.rpc.ErrorInfo: "LOCK_BUSY" for TypeBusy, and so on. If the
// type adds nothing to the status, it is the text of the status.
func (p *ProblemError) Reason() string {
	name := p.Type[strings.LastIndexByte(p.Type, '/')+1:]
	if p.Type == typeBlank {
		name = http.StatusText(p.Status)
	}
	return strings.ToUpper(strings.NewReplacer("-", "_", " ", "_", "'", "_").Replace(name))
}

// Metadata returns the metadata for a google.rpc.ErrorInfo: the type and, as far as they are known,
// the namespace, the entity, and holder_pid, holder_application_name and holder_client_addr. All
// values are UTF-8, as the message encoding requires.
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

// Retry returns the delay for a google.rpc.RetryInfo: how long the client should wait before it
// resends the call, which had no effect. 0 = do not resend, for example because a lock was lost
// and the outcome is unknown.
func (p *ProblemError) Retry() time.Duration {
	if p.Type == TypeLost {
		return 0
	}
	return p.retryAfter()
}

// Message returns the text for the status of an RPC.
func (p *ProblemError) Message() string {
	if p.Detail == "" {
		return p.Title
	}
	return p.Title + ": " + p.Detail
}
