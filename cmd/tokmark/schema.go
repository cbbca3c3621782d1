package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// answerSchema is a JSON schema that answers are asked to fit.
type answerSchema struct {
	text     json.RawMessage
	compiled *jsonschema.Schema
}

// readSchema reads a schema from a file. It may refer to nothing outside of
// itself.
func readSchema(path string) (*answerSchema, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read schema: %w", err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read schema %s: %w", path, err)
	}
	const name = "schema.json"
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource(name, doc); err != nil {
		return nil, fmt.Errorf("read schema %s: %w", path, err)
	}
	compiled, err := c.Compile(name)
	if err != nil {
		return nil, fmt.Errorf("read schema %s: %w", path, err)
	}
	var small bytes.Buffer
	if err := json.Compact(&small, text); err != nil {
		return nil, fmt.Errorf("read schema %s: %w", path, err)
	}
	return &answerSchema{text: small.Bytes(), compiled: compiled}, nil
}

// fits reports whether an answer is JSON that fits the schema. Safe for
// concurrent use.
func (s *answerSchema) fits(answer string) bool {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(answer)))
	return err == nil && s.compiled.Validate(doc) == nil
}
