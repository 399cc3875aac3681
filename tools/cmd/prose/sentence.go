package main

import (
	"fmt"
	"regexp"
	"strings"
)

// most is how many words a sentence may have.
const most = 30

// A paragraph is text without code blocks, from a line of its file.
type paragraph struct {
	line int
	text string
}

// A finding is a sentence, and why it is hard to read.
type finding struct {
	path     string
	line     int
	why      string
	sentence string
}

func (f finding) String() string {
	if f.why == "" {
		return fmt.Sprintf("%s:%d: %s", f.path, f.line, f.sentence)
	}
	return fmt.Sprintf("%s:%d: %s: %s", f.path, f.line, f.why, f.sentence)
}

// constructions are those that native readers stumble over, and what to write instead.
var constructions = []struct {
	pattern *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?i)\b(is|are|was|were|be) told\b`), `write "receives", "learns" or "is notified"`},
	{regexp.MustCompile(`(?i)\bfor ever\b`), `write "forever", or say what ends it`},
	{regexp.MustCompile(`(?i)\bin no time\b|\btakes no time\b`), `say how long it takes`},
	{regexp.MustCompile(`(?i)\b(is|stays?|remains?|leaves? it|left) as it (is|was)\b|\bas it is[.;,]`), `say what stays unchanged`},
	{regexp.MustCompile(`^(Whoever|Who (takes|waits|wants|has|holds|comes|asks|gives|looks|loses|leads|claims|owns|needs|sends|reads|writes|dies|may|must|can|cannot)) [^?]*$`), `name the subject: "A process that"`},
	{regexp.MustCompile(`(?i)\bof what (no|nobody|none)\b|\bnothing (speaks|says) against\b`), `say it without "no"`},
	{regexp.MustCompile(`(?i)\bis none of\b`), `say what it is`},
	{regexp.MustCompile(`(?i)\bis heard of\b|\bhears? nothing of\b`), `write "receives" or "is silent"`},
}

var (
	code    = regexp.MustCompile("`[^`]*`")
	link    = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
	comment = regexp.MustCompile(`(?s)<!--.*?-->`)
	whole   = regexp.MustCompile(`.+?[.!?:]["')*_]*\s`)
	end     = regexp.MustCompile(`[.!?:;]["')*_]*(\s+|$)`)
)

// sentences splits a text. A colon and a semicolon end one too: what follows can be read for itself.
func sentences(text string) (all []string) {
	text = comment.ReplaceAllString(text, "")
	text = link.ReplaceAllString(text, "$1")
	text = code.ReplaceAllStringFunc(text, func(string) string { return "code" })
	text = strings.Join(strings.Fields(text), " ")
	for text != "" {
		at := end.FindStringIndex(text)
		if at == nil {
			return append(all, text)
		}
		all = append(all, strings.TrimSpace(text[:at[1]]))
		text = text[at[1]:]
	}
	return all
}

// sentences returns the whole sentences of a paragraph, with their code.
func (p paragraph) sentences() (all []string) {
	text := strings.Join(strings.Fields(comment.ReplaceAllString(p.text, "")), " ")
	for _, sentence := range whole.FindAllString(text+" ", -1) {
		if sentence = strings.TrimSpace(sentence); len(strings.Fields(sentence)) > 2 {
			all = append(all, sentence)
		}
	}
	return all
}

// check returns what is hard to read in a paragraph.
func (p paragraph) check(path string) (found []finding) {
	for _, sentence := range sentences(p.text) {
		if n := len(strings.Fields(sentence)); n > most {
			found = append(found, finding{path, p.line, fmt.Sprintf("%d words, at most %d", n, most), sentence})
		}
		for _, c := range constructions {
			if c.pattern.MatchString(sentence) {
				found = append(found, finding{path, p.line, c.instead, sentence})
			}
		}
	}
	return found
}
