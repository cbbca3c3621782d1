package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/spf13/pflag"

	"github.com/tokmark/tokmark/report"
)

// notInScenario are flags that make no sense, or do harm, in a file.
var notInScenario = []string{"print-config", "help", "api-key", "from"}

// loadScenario sets every flag that the file names and the command line does
// not. Unknown keys and values that do not fit are errors with their place.
func loadScenario(path string, fs *pflag.FlagSet) error {
	text, err := os.ReadFile(path)
	if err != nil {
		err = fmt.Errorf("read scenario: %w", err)
		hint := "a scenario is a YAML file of option names and values; tokmark run --help lists the options"
		if path == "true" || path == "false" {
			hint = "a switch takes its value after =, as --streaming=" + path
		}
		return &exitError{code: exitUsage, err: err, hint: hint}
	}
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return fmt.Errorf("read scenario %w", yamlError(path, err))
	}
	var errs []error
	given := map[string]bool{}
	fs.Visit(func(f *pflag.Flag) { given[f.Name] = true })
	for _, doc := range file.Docs {
		var pairs []*ast.MappingValueNode
		switch body := doc.Body.(type) {
		case nil:
			continue
		case *ast.MappingNode:
			pairs = body.Values
		case *ast.MappingValueNode:
			pairs = []*ast.MappingValueNode{body}
		default:
			return fmt.Errorf("read scenario %s: it is no mapping of option names to values", path)
		}
		for _, pair := range pairs {
			if err := setFromScenario(pair, fs, given); err != nil {
				at := pair.Key.GetToken().Position
				errs = append(errs, fmt.Errorf("%s:%d:%d: %w", path, at.Line, at.Column, err))
			}
		}
	}
	return errors.Join(errs...)
}

// plainYAML leaves the excerpt of the file out of a YAML error.
func plainYAML(err error) error {
	var at yaml.Error
	if errors.As(err, &at) {
		return errors.New(strings.Join(strings.Fields(at.GetMessage()), " "))
	}
	return err
}

// yamlError is what a YAML file's error says, in one line with its place.
func yamlError(path string, err error) error {
	var at yaml.Error
	if errors.As(err, &at) && at.GetToken() != nil {
		p := at.GetToken().Position
		return fmt.Errorf("%s:%d:%d: %s", path, p.Line, p.Column, strings.Join(strings.Fields(at.GetMessage()), " "))
	}
	return fmt.Errorf("%s: %w", path, err)
}

func setFromScenario(pair *ast.MappingValueNode, fs *pflag.FlagSet, given map[string]bool) error {
	key := pair.Key.GetToken().Value
	flag := fs.Lookup(key)
	if key == "classes" { // the list of what --class gives one by one
		flag = fs.Lookup("class")
	}
	if flag == nil || slices.Contains(notInScenario, flag.Name) {
		if key == "api-key" {
			return errors.New("a key does not belong in a file: use $OPENAI_API_KEY")
		}
		return fmt.Errorf("unknown key %q%s", key, didYouMean(key, fs))
	}
	if given[flag.Name] {
		return nil // the command line wins
	}
	var v any
	if err := yaml.NodeToValue(pair.Value, &v); err != nil {
		return fmt.Errorf("%s: %w", key, plainYAML(err))
	}
	values := []any{v}
	if list, ok := v.([]any); ok {
		if _, many := flag.Value.(pflag.SliceValue); !many {
			return fmt.Errorf("%s: one value is expected, not a list", key)
		}
		values = list
		if _, sweep := flag.Value.(*levels); sweep { // which takes them all at once
			texts := make([]string, len(list))
			for i, v := range list {
				texts[i] = fmt.Sprint(v)
			}
			values = []any{strings.Join(texts, ",")}
		}
	}
	for _, v := range values {
		var s string
		switch v := v.(type) {
		case nil:
			return fmt.Errorf("%s: no value", key)
		case map[string]any:
			b, err := json.Marshal(v)
			if err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
			s = string(b)
		default:
			s = fmt.Sprint(v)
		}
		if err := fs.Set(flag.Name, s); err != nil {
			return fmt.Errorf("%s: %s: %w", key, s, valueError(flag, s, err))
		}
	}
	return nil
}

// didYouMean names the flag that differs least from key, if any is near.
func didYouMean(key string, fs *pflag.FlagSet) string {
	best, name := len(key)/3+2, ""
	fs.VisitAll(func(f *pflag.Flag) {
		if d := report.Distance(key, f.Name); d < best {
			best, name = d, f.Name
		}
	})
	if name == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", name)
}

// effective returns the value of every flag by name, secrets left out.
func effective(fs *pflag.FlagSet, o *options) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	fs.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(notInScenario, f.Name) {
			return
		}
		var v any = f.Value.String()
		switch f.Name {
		case "header":
			names := []string{}
			for _, h := range o.headers {
				name, _, _ := strings.Cut(h, ":")
				names = append(names, strings.TrimSpace(name)+": ***")
			}
			v = names
		case "url":
			v = maskURL(o.url)
		case "gpu-telemetry":
			v = maskURL(o.gpuTelemetry)
		case "proxy":
			v = maskURL(o.proxy)
		default:
			if l, ok := f.Value.(*levels); ok {
				v = json.RawMessage("[" + l.String() + "]")
				if len(*l) == 1 {
					v = json.RawMessage(l.String())
				}
			} else if s, ok := f.Value.(pflag.SliceValue); ok {
				v = s.GetSlice()
			} else if t := f.Value.Type(); t != "string" && t != "duration" {
				v = json.RawMessage(f.Value.String())
			}
		}
		b, err := json.Marshal(v)
		if err != nil {
			b, _ = json.Marshal(f.Value.String())
		}
		out[f.Name] = b
	})
	return out
}

// scenarioYAML writes the effective configuration as a scenario file. What was
// not asked for stands in comments, so that reading the file again means the
// same; so do headers, whose values are left out.
func scenarioYAML(config map[string]json.RawMessage, fs *pflag.FlagSet) ([]byte, error) {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(config)) {
		var v any
		var whole uint64 // as a float64 a large count would come out as 1e+06
		if json.Unmarshal(config[name], &whole) == nil {
			v = whole
		} else if err := json.Unmarshal(config[name], &v); err != nil {
			return nil, err
		}
		text, err := yaml.Marshal(map[string]any{name: v})
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(text) {
			if !fs.Changed(name) || name == "header" {
				out.WriteString("# ")
			}
			out.Write(line)
		}
	}
	return out.Bytes(), nil
}
