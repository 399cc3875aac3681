package introspect

import (
	"crypto/hpke"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// All processes listen on askChannel. A question names the channel for the answers, which must begin
// with replyPrefix: a question cannot make a process send to any other channel.
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

// A call is a message on askChannel.
type call struct {
	Version  int       `json:"v"`
	Reply    string    `json:"reply"`
	Key      []byte    `json:"key"` // public key that the replies are sealed for
	Question *Question `json:"question,omitempty"`
	Request  *Request  `json:"request,omitempty"`

	sealed hpke.PublicKey // Key, as read
}

// A message is a reply to a call. It is sent sealed.
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

// split cuts ASCII text into payloads: "2/3 …" is the second part of three.
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

// A collection holds the parts of one session's message that have arrived. They arrive in order,
// because one transaction sent them.
type collection struct {
	key  hpke.PrivateKey
	text strings.Builder
	have int
}

// add adds a part. If it was the last, add returns the message.
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
