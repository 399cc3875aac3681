package wire

import "encoding/json"

// MaxBatch is how many operations one batch has at most.
const MaxBatch = 1000

// A BatchBody is the body of many operations in one request.
type BatchBody struct {
	Operations []BatchOperation `json:"operations"`
}

// A BatchOperation is one of them. Exactly one field is set.
type BatchOperation struct {
	Acquire *BatchAcquireBody `json:"acquire,omitempty"`
	Renew   *BatchRenewBody   `json:"renew,omitempty"`
	Release *BatchReleaseBody `json:"release,omitempty"`
}

// A BatchAcquireBody is an acquire in a batch. A batch does not wait: any Wait but zero is refused.
type BatchAcquireBody struct {
	Lock string `json:"lock"`
	AcquireBody
	Wait string `json:"wait,omitempty"`
}

// A BatchRenewBody is a renewal in a batch.
type BatchRenewBody struct {
	Lock string `json:"lock"`
	RenewBody
}

// A BatchReleaseBody is a release in a batch.
type BatchReleaseBody struct {
	Lock string `json:"lock"`
	ReleaseBody
}

// A BatchedBody is the answer to a batch: its results, in order.
type BatchedBody struct {
	Results []BatchResult `json:"results"`
}

// A BatchResult is the answer that a single request would have got: its status, and one of the
// others.
type BatchResult struct {
	Status   int           `json:"status"`
	Lease    *LeaseBody    `json:"lease,omitempty"`    // of an acquire and a renewal
	Released *ReleasedBody `json:"released,omitempty"` // of a release
	Problem  *Problem      `json:"problem,omitempty"`
}

// A RawBatchedBody is a BatchedBody whose answers are not decoded yet.
type RawBatchedBody struct {
	Results []RawBatchResult `json:"results"`
}

// A RawBatchResult is a BatchResult that is not decoded yet.
type RawBatchResult struct {
	Status   int             `json:"status"`
	Lease    json.RawMessage `json:"lease,omitempty"`
	Released json.RawMessage `json:"released,omitempty"`
	Problem  json.RawMessage `json:"problem,omitempty"`
}
