package apitest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, "/apis/coordination.k8s.io/v1/namespaces/")
	namespace, name, _ := strings.Cut(path, "/leases")
	name = strings.TrimPrefix(name, "/")
	verb := map[string]string{http.MethodGet: Get, http.MethodPost: Create, http.MethodPut: Update}[r.Method]
	if r.URL.Query().Get("watch") != "" {
		verb = Watch
		name = strings.TrimPrefix(r.URL.Query().Get("fieldSelector"), "metadata.name=")
	}
	if !ok || verb == "" {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.Method+" "+r.URL.Path)
		return
	}
	fault := s.next(verb)
	if fault.Arrived != nil {
		close(fault.Arrived)
	}
	if fault.Hold != nil {
		select {
		case <-fault.Hold:
		case <-s.quit:
		}
	}
	if fault.Before != nil {
		fault.Before()
	}
	switch {
	case fault.Drop:
		panic(http.ErrAbortHandler)
	case fault.Status != 0:
		refuse(w, fault.Status, reasons[fault.Status], "injected")
		return
	case verb == Watch:
		s.watch(w, r, namespace+"/"+name, fault.Silent)
		return
	case fault.Lose:
		s.execute(httptest.NewRecorder(), r, verb, namespace, name)
		panic(http.ErrAbortHandler)
	case fault.Again:
		s.execute(httptest.NewRecorder(), r, verb, namespace, name)
		w.Header().Set("Retry-After", "0")
		refuse(w, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "injected")
		return
	}
	s.execute(w, r, verb, namespace, name)
}

var reasons = map[int]metav1.StatusReason{
	http.StatusForbidden: metav1.StatusReasonForbidden, http.StatusConflict: metav1.StatusReasonConflict,
	http.StatusGone: metav1.StatusReasonExpired, http.StatusInternalServerError: metav1.StatusReasonInternalError,
}

func (s *Server) next(verb string) Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count[verb]++
	if s.fault == nil {
		return Fault{}
	}
	return s.fault(verb)
}

func (s *Server) execute(w http.ResponseWriter, r *http.Request, verb, namespace, name string) {
	switch verb {
	case Get:
		l := s.Lease(namespace, name)
		if l == nil {
			refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound, name)
			return
		}
		answer(w, http.StatusOK, l)
	default:
		var l coordinationv1.Lease
		if err := json.NewDecoder(r.Body).Decode(&l); err != nil {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
			return
		}
		l.Namespace, l.TypeMeta = namespace, metav1.TypeMeta{}
		s.write(w, verb, &l)
	}
}

// write creates or updates a Lease.
func (s *Server) write(w http.ResponseWriter, verb string, l *coordinationv1.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := l.Namespace + "/" + l.Name
	old := s.leases[key]
	switch {
	case l.Spec.LeaseDurationSeconds == nil || *l.Spec.LeaseDurationSeconds <= 0 || l.Spec.LeaseTransitions != nil && *l.Spec.LeaseTransitions < 0:
		refuse(w, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "spec")
	case verb == Create && old != nil:
		refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists, l.Name)
	case verb == Create:
		l.UID = types.UID(fmt.Sprint("uid-", s.version))
		s.recordLocked(key, "ADDED", l)
		answer(w, http.StatusCreated, l)
	case old == nil || l.ResourceVersion != old.ResourceVersion || l.UID != old.UID:
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict, "the object has been modified")
	case equality.Semantic.DeepEqual(l, old):
		answer(w, http.StatusOK, l)
	default:
		s.recordLocked(key, "MODIFIED", l)
		answer(w, http.StatusOK, l)
	}
}

func answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(typed(object))
}

// typed adds the type of an object, as in all JSON of the API.
func typed(object any) any {
	switch o := object.(type) {
	case *coordinationv1.Lease:
		o = o.DeepCopy()
		o.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
		return o
	case *metav1.Status:
		o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	}
	return object
}

func refuse(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	answer(w, code, &metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message})
}
