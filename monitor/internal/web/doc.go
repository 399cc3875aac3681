// Package web shows incidents to people: HTML that is complete without JavaScript, and
// server-sent events that keep it up to date. It is given what there is to show, and asks nobody.
//
// Server-sent events are a dozen lines with http.ResponseController; what a library would add, channels and
// replay of what was missed, is not wanted: who comes back gets the whole picture.
package web
