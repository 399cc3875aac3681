// Package turns is a mailbox for each entity, on PostgreSQL: one turn at a time for each entity, in the order
// in which its messages came, on any replica.
package turns
