package like_test

import (
	"testing"

	"github.com/tokmark/tokmark/report/like"
)

func TestStandardJSON(t *testing.T) {
	for in, want := range map[string]string{
		`{"request_rate": Infinity, "a": [NaN,-Infinity]}`: `{"request_rate": null, "a": [null,null]}`,
		`{"NaN": "Infinity \" NaN", "x": 1}`:               `{"NaN": "Infinity \" NaN", "x": 1}`,
		`{"open": "\`:                                      `{"open": "\`,
		``:                                                 ``,
	} {
		if got := string(like.StandardJSON([]byte(in))); got != want {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
	}
}
