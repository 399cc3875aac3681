// Package queue has systems that handle messages of entities, and measures them doing the same work. Each message
// becomes one row of a table, in the transaction that ends the message.
package queue
