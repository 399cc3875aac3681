package middleware

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// A recorder notes whether an answer was begun. http.ResponseController reaches the methods of
// other writers through Unwrap. Methods that begin an answer must not bypass the recorder.
type recorder struct {
	http.ResponseWriter
	written bool
}

// Record returns a writer for the handler, and a function that reports whether an answer was begun
// on it. An answer begins with a status of 200 and above or 101, bytes, a flush or a hijacking. The
// writer has the http.Flusher and http.Hijacker of w, or of a writer inside w.
func Record(w http.ResponseWriter) (http.ResponseWriter, func() bool) {
	outer, rec := record(w)
	return outer, rec.wrote
}

func record(w http.ResponseWriter) (http.ResponseWriter, *recorder) {
	rec := &recorder{ResponseWriter: w}
	flushes, hijacks := supports[http.Flusher](w), supports[http.Hijacker](w)
	switch {
	case flushes && hijacks:
		return struct {
			*recorder
			flusher
			hijacker
		}{rec, flusher{rec}, hijacker{rec}}, rec
	case flushes:
		return struct {
			*recorder
			flusher
		}{rec, flusher{rec}}, rec
	case hijacks:
		return struct {
			*recorder
			hijacker
		}{rec, hijacker{rec}}, rec
	}
	return rec, rec
}

func supports[T any](w http.ResponseWriter) bool {
	for {
		if _, ok := w.(T); ok {
			return true
		}
		u, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return false
		}
		w = u.Unwrap()
	}
}

func (w *recorder) wrote() bool { return w.written }

// Unwrap is for http.ResponseController.
func (w *recorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *recorder) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols { // the other 1xx precede an answer
		w.written = true
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *recorder) Write(b []byte) (int, error) {
	w.written = true
	return w.ResponseWriter.Write(b)
}

// ReadFrom keeps sendfile possible.
func (w *recorder) ReadFrom(src io.Reader) (int64, error) {
	n, err := io.Copy(w.ResponseWriter, src)
	w.written = w.written || n > 0
	return n, err
}

// FlushError is the flush method of http.ResponseController. It sends the header.
func (w *recorder) FlushError() error {
	err := http.NewResponseController(w.ResponseWriter).Flush()
	w.written = w.written || err == nil
	return err
}

type flusher struct{ rec *recorder }

func (f flusher) Flush() { _ = f.rec.FlushError() }

type hijacker struct{ rec *recorder }

func (h hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.rec.ResponseWriter).Hijack()
	h.rec.written = h.rec.written || err == nil
	return conn, rw, err
}
