-- One row for each turn of a conversation. Its number, of a sequence, is the order in which turns were saved.
CREATE TABLE IF NOT EXISTS replies (
	n bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	conversation text NOT NULL,
	ids text[] NOT NULL,     -- of the messages that the reply is for, in their order
	numbers bigint[] NOT NULL,
	reply text NOT NULL,
	token bigint NOT NULL,   -- of the turn
	replica text NOT NULL
);
CREATE INDEX IF NOT EXISTS replies_conversation ON replies (conversation, n);
