// Package namespace turns names into PostgreSQL advisory-lock keys and back.
//
// PostgreSQL has two kinds of advisory-lock key, a pair of int4 and a single int8,
// in two separate key spaces (PostgreSQL manual, section 9.28.10, "Advisory Lock
// Functions"). A program declares its namespaces once, as package variables, and
// names entities inside them:
//
//	var Agents = namespace.Must(1, "agent")
//
//	Agents.ID(42)            // the pair (1, 42): pg_advisory_lock(1, 42)
//	Agents.UUID(id)          // a single bigint
//	Agents.Text("acme/eu")   // a single bigint
//
// # Derivation
//
// An integer that fits int4 becomes the pair (namespace number, entity). That is
// exact and reversible. A program in any other language takes the same key with
// pg_advisory_lock(1, 42), and Go code with Pair(1, 42). Everything else becomes one
// non-negative bigint:
//
//	bit  63      0
//	bits 62..48  the namespace number
//	bits 47..0   the first 48 bits, big endian, of
//	             SHA-256(int4 length of name ‖ name ‖ entity)
//
// The length is four bytes, big endian. All text is UTF-8. The entity of a wide
// integer is its decimal text. The entity of a UUID is its lower-case canonical
// text. Text that is the canonical decimal of an int64 is that integer. Text in the
// canonical form of a UUID, in any case, is that UUID. So a route "/agents/42" and a
// worker's Agents.ID(42) exclude each other.
//
// The same in SQL, with name 'agent', number 1 and entity 'acme/eu':
//
//	SELECT (1::bigint << 48) | ('x' || encode(substr(sha256(
//	         int4send(octet_length(convert_to('agent','UTF8'))) ||
//	         convert_to('agent','UTF8') || convert_to('acme/eu','UTF8')), 1, 6), 'hex'))::bit(48)::bigint
//
// and in Python:
//
//	1 << 48 | int.from_bytes(hashlib.sha256(len(n).to_bytes(4, "big") + n + e).digest()[:6], "big")
//
// with n = b"agent" and e = b"acme/eu".
//
// An entity also has companion keys: the slots and the turnstile of a semaphore.
// They hash the entity, a NUL byte and their role ("slot7", "turnstile"), even if
// the entity itself is a pair.
//
// Two entities of one namespace share a key with probability 2⁻⁴⁸. They then exclude
// each other needlessly, but nothing worse happens. The derivation never changes
// between versions of this package: two versions that disagree would stop excluding
// each other during a deploy. Test vectors are frozen in testdata.
package namespace
