package introspect

import (
	"crypto/hpke"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// askChannel is that on which all processes listen, replyPrefix that of the channels on which
// they are told to answer. A question cannot make them send to any other.
const (
	askChannel  = "pglatch_ask"
	replyPrefix = "pglatch_reply_"
)

var replyChannel = regexp.MustCompile(`^` + replyPrefix + `[0-9a-f]{24}$`)

// A payload of NOTIFY is shorter than 8,000 bytes (PostgreSQL manual, NOTIFY).
const (
	maxPayload = 7999
	partSize   = 7900
	maxParts   = 1000
)

// A call is what is sent on askChannel.
type call struct {
	Version  int       `json:"v"`
	Reply    string    `json:"reply"`
	Key      []byte    `json:"key"` // for which the messages are sealed
	Question *Question `json:"question,omitempty"`
	Request  *Request  `json:"request,omitempty"`

	sealed hpke.PublicKey // Key, as read
}

// A message is what is sent back, sealed.
type message struct {
	Answer  *Answer `json:"answer,omitempty"`
	Replies []Reply `json:"replies,omitempty"`
}

func readCall(payload string) (call, error) {
	var c call
	if err := json.Unmarshal([]byte(payload), &c); err != nil {
		return call{}, err
	}
	switch {
	case c.Version != 1:
		return call{}, fmt.Errorf("version %d of the question is not known", c.Version)
	case !replyChannel.MatchString(c.Reply):
		return call{}, fmt.Errorf("the channel for replies is %.40q", c.Reply)
	case (c.Question == nil) == (c.Request == nil):
		return call{}, fmt.Errorf("neither a question nor a request, or both")
	}
	var err error
	c.sealed, err = sealKEM.NewPublicKey(c.Key)
	return c, err
}

// split cuts text, which is ASCII, into payloads: "2/3 …" is the second part of three.
func split(text string) ([]string, error) {
	var chunks []string
	for len(text) > 0 {
		n := min(partSize, len(text))
		chunks, text = append(chunks, text[:n]), text[n:]
	}
	if len(chunks) > maxParts {
		return nil, fmt.Errorf("an answer of %d parts: %d are allowed", len(chunks), maxParts)
	}
	for i, c := range chunks {
		chunks[i] = strconv.Itoa(i+1) + "/" + strconv.Itoa(len(chunks)) + " " + c
	}
	return chunks, nil
}

// A collection is the parts of one session's message that have come. They come in order, because
// one transaction sent them.
type collection struct {
	key  hpke.PrivateKey
	text strings.Builder
	have int
}

// add adds a part, and returns the message when it was the last.
func (c *collection) add(payload string) (m message, complete bool, err error) {
	head, chunk, _ := strings.Cut(payload, " ")
	first, last, _ := strings.Cut(head, "/")
	i, err1 := strconv.Atoi(first)
	n, err2 := strconv.Atoi(last)
	if err1 != nil || err2 != nil || i != c.have+1 || i > n || n > maxParts {
		return m, false, fmt.Errorf("part %.20q after %d", head, c.have)
	}
	c.text.WriteString(chunk)
	if c.have = i; i < n {
		return m, false, nil
	}
	m, err = unseal(c.key, c.text.String())
	return m, err == nil, err
}
