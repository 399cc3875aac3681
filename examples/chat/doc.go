// Package chat is a chat service on pglatch, to be read and copied. Any number of replicas run on one database behind one
// port, and any of them takes any request:
//
//	POST   /conversations/{id}        {"id": "m1", "text": "hello"}   a message: 202 with its number
//	GET    /conversations/{id}        the replies so far
//	DELETE /conversations/{id}/turn   stop the answer that is being written
//
// A conversation has one turn at a time, over all replicas. A turn takes all messages that wait, so a burst has one
// answer. What the user adds while the answer is being written becomes part of it. The reply and the end of its
// messages are one commit: a replica that dies in the middle leaves neither.
//
// The program has no authentication: put it behind a proxy that has.
package chat
