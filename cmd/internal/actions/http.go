package actions

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"html/template"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/bearer"
	"github.com/pglatch/pglatch/internal/problem"
	"github.com/pglatch/pglatch/internal/strictjson"
)

// Header is what a page's script sends with each action. A page of another origin cannot, without being asked for leave.
const Header = "Pglatch-Action"

const (
	maxBody = 16 << 10
	// actTimeout is longer than a resignation with a preferred successor takes.
	actTimeout = 45 * time.Second
)

//go:embed assets
var assets embed.FS

var signInPage = template.Must(template.ParseFS(assets, "assets/sign-in.html"))

const policy = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

func secure(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", policy)
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Robots-Tag", "noindex")
}

type personKey struct{}

// Wrap returns a handler that lets only the Server's people through to next. Others get a page to sign in.
func (s *Server) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dir, name := path.Split("/" + strings.TrimPrefix(r.URL.Path, "/"))
		inside := path.Base(dir) == "actions"
		switch {
		case inside && name == "actions.css":
			s.asset(w, r, "text/css; charset=utf-8", name)
			return
		case inside && name == "actions.js":
			s.asset(w, r, "text/javascript; charset=utf-8", name)
			return
		case inside && name == "sign-in":
			s.signIn(w, r)
			return
		}
		people := s.people.Load()
		who := people.of(r, &s.sessions)
		if who == nil {
			s.stranger(w, r, inside)
			return
		}
		if r.Method == http.MethodGet || r.Method == http.MethodHead { // an action goes on
			ctx, cancel := context.WithCancel(r.Context())
			defer cancel()
			defer context.AfterFunc(people.lifetime, cancel)()
			r = r.WithContext(ctx)
		}
		r = r.WithContext(context.WithValue(r.Context(), personKey{}, who))
		next.ServeHTTP(w, r)
	})
}

// stranger answers a request of nobody who is known.
func (s *Server) stranger(w http.ResponseWriter, r *http.Request, inside bool) {
	secure(w.Header())
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if !s.allow(w, r) {
		return
	}
	if inside && !reads {
		detail := "nobody has signed in, or the token is not known any more"
		if leaf := bearer.Leaf(r.TLS); leaf != nil {
			detail = "nobody has signed in, and the certificate " + bearer.Subject(leaf) + " has no role"
		}
		s.refuseTo(w, r, nil, http.StatusUnauthorized, path.Base(r.URL.Path), "", detail)
		return
	}
	w.Header().Set("WWW-Authenticate", "Bearer")
	if !reads || !strings.Contains(r.Header.Get("Accept"), "text/html") {
		refuse(w, http.StatusUnauthorized, "send a bearer token that the page knows, or sign in")
		return
	}
	view := ""
	if !strings.HasSuffix(r.URL.Path, "/") {
		view = path.Base(r.URL.Path)
	}
	s.signInForm(w, http.StatusUnauthorized, "", view+"?"+r.URL.RawQuery)
}

// signInForm asks for a token. next is the view to show then, from the page's address.
func (s *Server) signInForm(w http.ResponseWriter, status int, said, next string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = signInPage.Execute(w, struct{ Said, Next string }{said, viewOf(next)}) // the client may have left
}

// viewOf returns a view with its query, or "" for what is none: nobody is sent anywhere else after signing in.
func viewOf(next string) string {
	name, query, _ := strings.Cut(next, "?")
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz") != "" {
		return ""
	}
	values, err := url.ParseQuery(query)
	if err != nil || len(values) == 0 {
		return name
	}
	return name + "?" + values.Encode()
}

// allow charges the request's address, and refuses a request beyond its rate.
func (s *Server) allow(w http.ResponseWriter, r *http.Request) bool {
	if s.limiter.Allow(r.RemoteAddr) {
		return true
	}
	if s.audit != nil && r.Method == http.MethodPost {
		s.audit.skip()
	}
	problem.Write(w, http.StatusTooManyRequests, time.Second, refusal{http.StatusText(http.StatusTooManyRequests), http.StatusTooManyRequests, "too many requests from this address: try again in a second"})
	return false
}

// signIn begins a session by the token of a form.
func (s *Server) signIn(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	if !s.allow(w, r) {
		return
	}
	if r.Method != http.MethodPost {
		s.signInForm(w, http.StatusOK, "", "")
		return
	}
	if err := s.origin.Check(r); err != nil {
		s.refuseTo(w, r, nil, http.StatusForbidden, "sign-in", "", "the request comes from a page of another origin")
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	token := bearer.Token(strings.TrimSpace(r.PostFormValue("token")))
	who := s.people.Load()
	p := who.at(who.set.Index(token))
	if p == nil {
		s.note(r, nil, Entry{Action: "sign-in", Outcome: refused, Detail: "the token is not known"})
		s.signInForm(w, http.StatusUnauthorized, "This token is not known.", r.PostFormValue("next"))
		return
	}
	s.note(r, p, Entry{Action: "sign-in", Outcome: done})
	s.sessions.open(w, r, token)
	w.Header().Set("Location", "../"+viewOf(r.PostFormValue("next")))
	w.WriteHeader(http.StatusSeeOther)
}

// Handler returns the handler of the actions on a database, for requests that Wrap let through.
func (s *Server) Handler(d Database) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(&d, w, r) })
}

func (s *Server) serve(d *Database, w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	who, _ := r.Context().Value(personKey{}).(*Person)
	if who == nil {
		panic("BUG: actions: a request came past Wrap")
	}
	name := path.Base(r.URL.Path)
	if name == "state" {
		s.state(d, w, r, who)
		return
	}
	if name != "sign-out" && name != "prepare" && name != "do" {
		refuse(w, http.StatusNotFound, "there is state, prepare, do and sign-out")
		return
	}
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		refuse(w, http.StatusMethodNotAllowed, "use POST")
		return
	}
	if !s.allow(w, r) {
		return
	}
	if err := s.origin.Check(r); err != nil || r.Header.Get(Header) != "1" {
		s.refuseTo(w, r, who, http.StatusForbidden, name, "", "the request comes from a page of another origin, or lacks the header "+Header+": 1")
		return
	}
	switch name {
	case "prepare":
		s.servePrepare(d, w, r, who)
	case "do":
		s.serveDo(d, w, r, who)
	default:
		s.note(r, who, Entry{Action: name, Outcome: done})
		s.sessions.close(w, r)
		w.WriteHeader(http.StatusNoContent)
	}
}

func (s *Server) servePrepare(d *Database, w http.ResponseWriter, r *http.Request, who *Person) {
	var body Request
	if err := read(r, &body); err != nil {
		s.refuseTo(w, r, who, http.StatusBadRequest, "prepare", "", err.Error())
		return
	}
	k := d.kindOf(body.Action)
	if k == nil {
		s.refuseTo(w, r, who, http.StatusBadRequest, body.Action, "", "there is no such action here")
		return
	}
	target := d.target(k, body)
	if who.Role < k.need {
		s.refuseTo(w, r, who, http.StatusForbidden, k.name, target, "this needs the role "+k.need.String()+", and "+who.Name+" has "+who.Role.String())
		return
	}
	if err := k.check(body); err != nil {
		s.refuseTo(w, r, who, http.StatusBadRequest, k.name, target, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), actTimeout)
	defer cancel()
	p, err := s.prepare(ctx, d, who, k, body)
	if err != nil {
		s.failed(w, err)
		return
	}
	writeJSON(w, http.StatusOK, p)
}

// A doBody confirms an action.
type doBody struct {
	Confirm string `json:"confirm"`
	Why     string `json:"why"`
}

func (s *Server) serveDo(d *Database, w http.ResponseWriter, r *http.Request, who *Person) {
	var body doBody
	if err := read(r, &body); err != nil {
		s.refuseTo(w, r, who, http.StatusBadRequest, "do", "", err.Error())
		return
	}
	c, ok := s.pendingOf(d, body.Confirm, who.Name)
	if err := program.CheckReason(body.Why); err != nil {
		name, target := "do", ""
		if ok {
			name, target = c.request.Action, d.target(d.kindOf(c.request.Action), c.request)
		}
		s.refuseTo(w, r, who, http.StatusBadRequest, name, target, err.Error())
		return
	}
	if !ok || !s.pending.remove(body.Confirm) {
		s.note(r, who, Entry{Action: "do", Why: body.Why, Outcome: refused, Detail: errConfirm.Error()})
		refuse(w, http.StatusConflict, errConfirm.Error())
		return
	}
	k := d.kindOf(c.request.Action)
	e := s.entry(r, who, Entry{Action: k.name, Target: d.target(k, c.request), Why: body.Why, Shown: c.shown.title})
	if who.Role < k.need { // another role than when it was prepared
		e.Outcome, e.Detail = refused, "this needs the role "+k.need.String()
		s.write(e)
		refuse(w, http.StatusForbidden, e.Detail)
		return
	}
	s.running.Add(1)
	defer s.running.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), actTimeout) // the audit learns how it ends
	defer cancel()
	result, again, err := s.perform(ctx, d, who, c, e)
	switch {
	case err != nil:
		e.Outcome, e.Detail = failed, program.OneLine(err.Error())
		s.write(e)
		s.failed(w, err)
	case result == nil:
		e.Outcome, e.Detail = refused, "it would end more than was shown, and is shown again"
		s.write(e)
		writeJSON(w, http.StatusConflict, again)
	default:
		writeJSON(w, http.StatusOK, result)
	}
}

// read reads the JSON of a request.
func read(r *http.Request, body any) error {
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return errors.New("send the body as application/json")
	}
	data, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return errors.New("the body ended early")
	case len(data) > maxBody:
		return errors.New("the body is too large")
	case !utf8.Valid(data):
		return errors.New("the body is not UTF-8")
	}
	if err := strictjson.Decode(data, body); err != nil {
		return errors.New("the body is not the JSON object that is wanted: " + program.Printable(err.Error()))
	}
	return nil
}

// failed answers with the error of a plan.
func (s *Server) failed(w http.ResponseWriter, err error) {
	status := http.StatusUnprocessableEntity
	switch program.Code(err) {
	case program.ExitUnavailable:
		status = http.StatusServiceUnavailable
	case program.ExitInternal:
		status = http.StatusInternalServerError
	}
	refuse(w, status, program.Printable(program.OneLine(err.Error())))
}

// refuseTo refuses a request, and writes that to the audit.
func (s *Server) refuseTo(w http.ResponseWriter, r *http.Request, who *Person, status int, action, target, detail string) {
	s.note(r, who, Entry{Action: action, Target: target, Outcome: refused, Detail: detail})
	refuse(w, status, program.Printable(detail))
}

// note writes an entry that is the only one of its id.
func (s *Server) note(r *http.Request, who *Person, e Entry) { s.write(s.entry(r, who, e)) }

// entry completes an entry by who sent a request.
func (s *Server) entry(r *http.Request, who *Person, e Entry) Entry {
	e.ID, e.From = rand.Text(), r.RemoteAddr
	if who != nil {
		e.Who, e.Role = who.Name, who.Role.String()
	}
	return e
}

// write writes an entry about something that is not done, or done already.
func (s *Server) write(e Entry) {
	if s.audit == nil {
		return
	}
	if err := s.audit.add(e); err != nil {
		s.config.Logger.Error("the audit cannot be written", slog.String("who", e.Who), slog.String("action", e.Action), slog.String("outcome", e.Outcome), slog.Any("error", err))
	}
}

func (s *Server) asset(w http.ResponseWriter, r *http.Request, kind, name string) {
	secure(w.Header())
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeFileFS(w, r, assets, "assets/"+name)
}

type refusal struct {
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func refuse(w http.ResponseWriter, status int, detail string) {
	problem.Write(w, status, 0, refusal{http.StatusText(status), status, detail})
}
