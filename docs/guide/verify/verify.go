// go run verify.go SECRET ID TIMESTAMP SIGNATURE < body
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

const tolerance = 5 * 60 // seconds

// Verify says whether the gateway that knows secret sent body, and not long ago.
func Verify(secret, id, timestamp, signature string, body []byte) bool {
	sent, err := strconv.ParseInt(timestamp, 10, 64)
	age := time.Now().Unix() - sent
	if err != nil || age > tolerance || age < -tolerance {
		return false
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return false
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	expected := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	// While a secret is being rotated there are several, with spaces between.
	for _, candidate := range strings.Split(signature, " ") {
		if hmac.Equal([]byte(candidate), []byte(expected)) {
			return true
		}
	}
	return false
}

func main() {
	body, err := io.ReadAll(os.Stdin)
	if err != nil || len(os.Args) != 5 || !Verify(os.Args[1], os.Args[2], os.Args[3], os.Args[4], body) {
		os.Exit(1)
	}
}
