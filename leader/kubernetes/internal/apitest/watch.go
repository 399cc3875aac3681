package apitest

import (
	"encoding/json"
	"net/http"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/runtime"
)

func (s *Server) watch(w http.ResponseWriter, r *http.Request, key string, silent bool) {
	after, _ := strconv.ParseUint(r.URL.Query().Get("resourceVersion"), 10, 64)
	s.mu.Lock()
	ended := s.watches
	if after < s.oldest {
		s.mu.Unlock()
		refuse(w, http.StatusGone, metav1.StatusReasonExpired, "too old resource version")
		return
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(http.StatusOK)
	for {
		s.mu.Lock()
		changed, events := s.changed, s.history
		s.mu.Unlock()
		for _, e := range events {
			if e.version > after && e.key == key && !silent {
				send(w, e.kind, e.lease)
			}
			after = max(after, e.version)
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-changed:
		case <-ended:
			send(w, "ERROR", &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonExpired})
			return
		case <-r.Context().Done():
			return
		case <-s.quit:
			return
		}
	}
}

func send(w http.ResponseWriter, kind string, object any) {
	_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": typed(object)})
}
