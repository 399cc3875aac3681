package agents

import "sync"

// An InferenceCache remembers the model's summary of each text, so that a repeated text costs
// this process no further call. Another process may pay for it again, which does no harm, so
// a mutex guards the cache, not an advisory lock.
type InferenceCache struct {
	mu        sync.Mutex
	summaries map[string]string // by text
}

// NewInferenceCache returns an empty cache.
func NewInferenceCache() *InferenceCache {
	return &InferenceCache{summaries: make(map[string]string)}
}

// Add remembers the summary of a text.
func (c *InferenceCache) Add(text, summary string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.summaries) >= maxRemembered {
		clear(c.summaries)
	}
	c.summaries[text] = summary
}

// Find returns the summary of a text, if it is remembered.
func (c *InferenceCache) Find(text string) (summary string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	summary, ok = c.summaries[text]
	return summary, ok
}
