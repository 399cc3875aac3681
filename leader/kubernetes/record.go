package kubernetes

import (
	"crypto/rand"
	"regexp"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/leader/driver"
)

// The annotations of a Lease.
const (
	// releasedAnnotation is the term that ended in good order. An empty holder alone does not prove that:
	// client-go's electors release while their work may still run.
	releasedAnnotation = "pglatch.github.io/released"
	// voidAnnotation is the resourceVersion on which a pending claim may be based. This change makes that
	// claim void.
	voidAnnotation = "pglatch.github.io/void"
)

// suffixLength gives a suffix 80 random bits.
const suffixLength = 16

func newSuffix() string { return "_" + strings.ToLower(rand.Text()[:suffixLength]) }

// suffixed matches a holder of this package. client-go's documentation recommends a UUID as suffix, which
// does not match.
var suffixed = regexp.MustCompile(`^(.*)_[a-z2-7]{16}$`)

// identityOf returns a holder without the suffix of this package.
func identityOf(holder string) string {
	if m := suffixed.FindStringSubmatch(holder); m != nil {
		return m[1]
	}
	return holder
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// termOf returns leaseTransitions as a term. client-go creates a Lease with 0, which is not a term.
func termOf(l *coordinationv1.Lease) driver.Term {
	return driver.TermOf(uint64(max(value(l.Spec.LeaseTransitions), 0)))
}

// isClean reports whether nobody holds the Lease because its last leader, one of this package, released it in
// good order.
func isClean(l *coordinationv1.Lease) bool {
	return value(l.Spec.HolderIdentity) == "" &&
		l.Annotations[releasedAnnotation] == strconv.Itoa(int(value(l.Spec.LeaseTransitions)))
}

// claimed returns the Lease with a new holder and term. current is nil if there is none.
func claimed(current *coordinationv1.Lease, name, holder string, at stamp, seconds, term int32) *coordinationv1.Lease {
	next := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if current != nil {
		next = current.DeepCopy()
	}
	now := metav1.NewMicroTime(at.wall)
	next.Spec.HolderIdentity, next.Spec.LeaseTransitions = &holder, &term
	next.Spec.LeaseDurationSeconds, next.Spec.AcquireTime, next.Spec.RenewTime = &seconds, &now, &now
	return next
}

// renewed returns the Lease with a later renewTime.
func renewed(current *coordinationv1.Lease, at stamp, seconds int32) *coordinationv1.Lease {
	next := current.DeepCopy()
	renewTime := metav1.NewMicroTime(at.wall)
	next.Spec.LeaseDurationSeconds, next.Spec.RenewTime = &seconds, &renewTime
	return next
}

// A stamp is the moment of a claim or a renewal.
type stamp struct {
	wall time.Time     // time as written
	boot time.Duration // by boottime
}

func stampNow() stamp { return stamp{time.Now(), boottime.Now()} }

// follow returns the stamp to write at now, and the duration. last is the stamp before.
//
// client-go's electors see renewTime in whole seconds. Of renewals within one second they notice the first
// and the next that differs. So renewals after the first in a second have a duration that is a second longer.
// That makes the second one differ, and makes up for those that do not. If a wall clock is set back, one
// second must not become longer: follow adds at least the elapsed time to last.
func (last stamp) follow(now stamp, seconds int32) (stamp, int32) {
	if least := last.wall.Add(now.boot - last.boot); now.wall.Before(least) {
		now.wall = least
	}
	if now.wall.Unix() == last.wall.Unix() {
		seconds++
	}
	return now, seconds
}

// released returns the Lease without a holder, as client-go's electors leave it. clean means that all terms
// so far ended in good order.
func released(current *coordinationv1.Lease, clean bool) *coordinationv1.Lease {
	next := claimed(current, current.Name, "", stampNow(), 1, value(current.Spec.LeaseTransitions))
	if clean {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, releasedAnnotation, strconv.Itoa(int(*next.Spec.LeaseTransitions)))
	}
	return next
}

// voided returns the Lease with another resourceVersion, so that a write based on the present one fails.
// Watchers see no renewal.
func voided(current *coordinationv1.Lease) *coordinationv1.Lease {
	next := current.DeepCopy()
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, voidAnnotation, current.ResourceVersion)
	return next
}
