package sqlite

import (
	"encoding/binary"
	"fmt"
	"os"
)

// walProblem returns what is wrong with the WAL at this path that a killed process left; "" if
// nothing shows. The last frame may be half written, as after a kill. A WAL that was cut at a frame
// looks like one that ends there.
func walProblem(path string) string {
	text, err := os.ReadFile(path)
	switch _, whole := sumHead(text); {
	case os.IsNotExist(err):
		return "it is gone"
	case err != nil:
		return "it cannot be read: " + err.Error()
	case len(text) < walHead:
		return "it is empty or cut"
	case !whole:
		return "its header is damaged"
	}
	size := frameHead + int(binary.BigEndian.Uint32(text[8:]))
	frames := int(countFrames(text))
	for at := walHead + (frames+1)*size; at+size <= len(text); at += size {
		if string(text[at+8:at+16]) == string(text[16:24]) { // else it is of an earlier use of the file
			return fmt.Sprintf("frame %d is damaged, and not the last", frames+1)
		}
	}
	return ""
}
