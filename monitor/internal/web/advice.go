package web

import "regexp"

// A saying is a piece of an advice: text, or a command that can be copied.
type saying struct {
	Text    string
	Command bool
}

// commands are those that an advice of package incident can have. A word of a command is quoted as incident.Shell does
// it, so that a full stop behind it is that of the sentence.
var commands = regexp.MustCompile(`pglatch terminate \d+|pglatch turns ls --[a-z]+|SELECT [^;]+ FROM pg_prepared_xacts;|` +
	`pglatch turns (?:show|retry|skip|interrupt) ` + word + `(?: --mailbox ` + word + `)?`)

const word = `(?:'[^']*'(?:\\''[^']*')*|[\w/:@.-]*[\w/:@-])`

// advice splits an advice at its commands.
func advice(text string) (all []saying) {
	at := 0
	for _, found := range commands.FindAllStringIndex(text, -1) {
		if found[0] > at {
			all = append(all, saying{Text: text[at:found[0]]})
		}
		all, at = append(all, saying{text[found[0]:found[1]], true}), found[1]
	}
	if at < len(text) {
		all = append(all, saying{Text: text[at:]})
	}
	return all
}
