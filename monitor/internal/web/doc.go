// Package web shows incidents to people: HTML that is complete without JavaScript, and server-sent
// events that keep it up to date. It receives the data and does no I/O for them.
//
// Server-sent events need a dozen lines with http.ResponseController. A library would add channels
// and replay of missed events, which are not wanted: a client that reconnects gets the whole
// picture.
package web
