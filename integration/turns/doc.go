// Package turns kills, stops and cuts off processes that serve a mailbox, and judges what they committed.
package turns
