package middleware

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

type plainWriter struct{ http.ResponseWriter }

type wrappedWriter struct{ inner http.ResponseWriter } // as other middlewares do

func (w wrappedWriter) Header() http.Header         { return w.inner.Header() }
func (w wrappedWriter) Write(b []byte) (int, error) { return w.inner.Write(b) }
func (w wrappedWriter) WriteHeader(status int)      { w.inner.WriteHeader(status) }
func (w wrappedWriter) Unwrap() http.ResponseWriter { return w.inner }

type hijackWriter struct{ http.ResponseWriter }

func (hijackWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) { return nil, nil, nil }

type bothWriter struct {
	hijackWriter
	http.Flusher
}

func TestAWriterKeepsItsInterfacesAndGetsNoOthers(t *testing.T) {
	t.Parallel()
	flushes := httptest.NewRecorder()
	for name, row := range map[string]struct {
		w               http.ResponseWriter
		flushes, hijack bool
	}{
		"plain":                    {plainWriter{flushes}, false, false},
		"flusher":                  {flushes, true, false},
		"hijacker":                 {hijackWriter{plainWriter{flushes}}, false, true},
		"both":                     {bothWriter{hijackWriter{flushes}, flushes}, true, true},
		"both, wrapped by another": {wrappedWriter{bothWriter{hijackWriter{flushes}, flushes}}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, rec := record(row.w)
			_, isFlusher := w.(http.Flusher)
			assert.Equal(t, row.flushes, isFlusher)
			hijacker, isHijacker := w.(http.Hijacker)
			assert.Equal(t, row.hijack, isHijacker)
			if isHijacker {
				_, _, err := hijacker.Hijack()
				require.NoError(t, err)
				assert.True(t, rec.wrote())
			}

			w, rec = record(row.w)
			err := http.NewResponseController(w).Flush()
			assert.Equal(t, row.flushes, err == nil)
			assert.Equal(t, row.flushes, rec.wrote())
			if !row.flushes {
				require.ErrorIs(t, err, http.ErrNotSupported)
			}
			w, rec = record(row.w)
			_, _, err = http.NewResponseController(w).Hijack()
			assert.Equal(t, row.hijack, err == nil)
			assert.Equal(t, row.hijack, rec.wrote())
		})
	}
}

func TestInformationalStatusIsNoAnswer(t *testing.T) {
	t.Parallel()
	w, rec := record(httptest.NewRecorder())
	w.WriteHeader(http.StatusEarlyHints)
	assert.False(t, rec.wrote())
	w.WriteHeader(http.StatusSwitchingProtocols)
	assert.True(t, rec.wrote())
}

type readerFrom struct {
	http.ResponseWriter
	used *bool
}

func (w readerFrom) ReadFrom(r io.Reader) (int64, error) {
	*w.used = true
	return io.Copy(struct{ io.Writer }{w.ResponseWriter}, r)
}

func TestCopyingReachesTheServersOwnReadFrom(t *testing.T) {
	t.Parallel()
	used := false
	recorder := httptest.NewRecorder()
	w, rec := record(readerFrom{recorder, &used})
	src := struct{ io.Reader }{strings.NewReader("")}
	_, err := io.Copy(w, src)
	require.NoError(t, err)
	assert.True(t, used)
	assert.False(t, rec.wrote(), "an empty source writes nothing")

	src.Reader = strings.NewReader("body")
	n, err := io.Copy(w, src)
	require.NoError(t, err)
	assert.EqualValues(t, 4, n)
	assert.True(t, rec.wrote())
	assert.Equal(t, "body", recorder.Body.String())
}
