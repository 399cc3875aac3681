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

	"github.com/pglatch/pglatch/internal/test/configdoc"
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
	type recorder = *httptest.ResponseRecorder
	for name, row := range map[string]struct {
		wrap            func(recorder) http.ResponseWriter
		flushes, hijack bool
	}{
		"plain":    {func(r recorder) http.ResponseWriter { return plainWriter{r} }, false, false},
		"flusher":  {func(r recorder) http.ResponseWriter { return r }, true, false},
		"hijacker": {func(r recorder) http.ResponseWriter { return hijackWriter{plainWriter{r}} }, false, true},
		"both":     {func(r recorder) http.ResponseWriter { return bothWriter{hijackWriter{r}, r} }, true, true},
		"both, wrapped by another": {func(r recorder) http.ResponseWriter {
			return wrappedWriter{bothWriter{hijackWriter{r}, r}}
		}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inner := row.wrap(httptest.NewRecorder()) // a recorder is for one goroutine
			w, rec := record(inner)
			_, isFlusher := w.(http.Flusher)
			assert.Equal(t, row.flushes, isFlusher)
			hijacker, isHijacker := w.(http.Hijacker)
			assert.Equal(t, row.hijack, isHijacker)
			if isHijacker {
				_, _, err := hijacker.Hijack()
				require.NoError(t, err)
				assert.True(t, rec.wrote())
			}

			w, rec = record(inner)
			err := http.NewResponseController(w).Flush()
			assert.Equal(t, row.flushes, err == nil)
			assert.Equal(t, row.flushes, rec.wrote())
			if !row.flushes {
				require.ErrorIs(t, err, http.ErrNotSupported)
			}
			w, rec = record(inner)
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

func TestCommentsOfTheConfigSayItsDefaults(t *testing.T) {
	t.Parallel()
	config, _ := Config{}.withDefaults() // the Locker is missing
	configdoc.Check(t, config)
}
