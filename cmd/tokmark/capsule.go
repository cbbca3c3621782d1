package main

import (
	"archive/zip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tokmark/tokmark/bench/record"
	"github.com/tokmark/tokmark/report/compare"
)

// A capsule is a zip file with all that is needed to make a run again and to
// compare: the files of the run directory, those that its options name, and
// capsule.json. Synthetic prompts are not in it: seed, salt and options make
// them again, and the workload's hash tells whether they are the same.
const (
	capsuleFile   = "capsule.json"
	capsuleSchema = 1
	capsuleInput  = "input/" // files that options name stand below it, by option
	// capsuleLimit bounds what one file of a capsule may unpack to.
	capsuleLimit = 16 << 30
)

// capsuleHead is capsule.json.
type capsuleHead struct {
	Schema int `json:"schema"`
	// Files are the files that options name: their base names by option.
	Files map[string]string `json:"files,omitempty"`
	// NotRepeatable says why the run cannot be made again, if so.
	NotRepeatable string `json:"not_repeatable,omitempty"`
}

// capsule is one that was opened: its files lie in a directory of their own.
type capsule struct {
	dir record.Dir
	m   *record.Manifest
	// notRepeatable says why the run cannot be made again, if so.
	notRepeatable string
}

// writeCapsule packs a run directory. notRepeatable says why the run cannot be
// made again from the capsule, if so.
func writeCapsule(path string, dir record.Dir) (notRepeatable string, err error) {
	m, err := dir.ReadManifest()
	if err != nil {
		return "", err
	}
	head := capsuleHead{Schema: capsuleSchema, Files: map[string]string{}}
	paths := map[string]string{}
	for _, option := range fileOptions {
		_, path := namedFile(option, configText(m, option))
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			head.NotRepeatable = fmt.Sprintf("the file of its --%s is not there: %v", option, err)
			continue
		}
		paths[option], head.Files[option] = path, fileName(filepath.Base(path))
	}
	switch {
	case m.Imported != nil:
		head.NotRepeatable = "its requests were imported, and what they asked is not known"
	case configText(m, "tokenizer") == "server":
		head.NotRepeatable = "the lengths of its prompts were counted by the server's own /tokenize"
	}
	err = writeFile(path, func(w io.Writer) error {
		z := zip.NewWriter(w)
		text, err := json.MarshalIndent(head, "", "  ")
		if err != nil {
			return err
		}
		out, err := z.Create(capsuleFile)
		if err == nil {
			_, err = out.Write(append(text, '\n'))
		}
		if err != nil {
			return err
		}
		for _, name := range []string{record.ManifestFile, record.RecordsFile, record.SamplesFile, record.SummaryJSONFile} {
			if err := pack(z, name, dir.Path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		for _, option := range fileOptions {
			if name := head.Files[option]; name != "" {
				if err := pack(z, capsuleInput+option+"/"+name, paths[option]); err != nil {
					return err
				}
			}
		}
		return z.Close()
	})
	if err != nil {
		return "", &exitError{code: exitFailed, err: fmt.Errorf("write capsule: %w", err)}
	}
	return head.NotRepeatable, nil
}

// pack adds a file under a name. It carries no time, so that the same run gives
// the same bytes.
func pack(z *zip.Writer, name, path string) error {
	in, err := os.Open(path)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := z.Create(name)
	if err == nil {
		_, err = io.Copy(out, in)
	}
	return err
}

// fileOptions are the options that may name a file which a run depends on.
var fileOptions = []string{"input-file", "response-format", "tokenizer", "isl-distribution", "osl-distribution"}

// namedFile is the path in the value of one of fileOptions, and what stands
// before it; empty: it names none.
func namedFile(option, value string) (before, path string) {
	switch option {
	case "tokenizer":
		switch value {
		case "", "none", "server", "cl100k_base", "o200k_base":
			return "", ""
		}
		if strings.HasPrefix(value, "tiktoken:") {
			return "", ""
		}
		if info, err := os.Stat(value); err == nil && info.IsDir() {
			value = filepath.Join(value, "tokenizer.json")
		}
	case "isl-distribution", "osl-distribution":
		const histogram = "histogram:"
		path, ok := strings.CutPrefix(value, histogram)
		if !ok {
			return "", ""
		}
		return histogram, path
	}
	return "", value
}

// configText is an option of a run as text; empty: it has none.
func configText(m *record.Manifest, name string) string {
	var s string
	_ = json.Unmarshal(m.Config[name], &s) // another kind of value is no text
	return s
}

// openCapsule unpacks a capsule whose run can be made again.
func openCapsule(path string) (*capsule, error) {
	c, err := unpackCapsule(path)
	if err == nil && c.notRepeatable != "" {
		return nil, errors.Join(fmt.Errorf("open capsule %s: the run cannot be made again: %s", path, c.notRepeatable), c.close())
	}
	return c, err
}

// unpackCapsule unpacks a capsule below a new temporary directory, which close
// removes.
func unpackCapsule(path string) (*capsule, error) {
	z, err := zip.OpenReader(path)
	if err != nil {
		return nil, fmt.Errorf("open capsule %s: %w", path, err)
	}
	defer func() { _ = z.Close() }() // it was only read
	tmp, err := os.MkdirTemp("", "tokmark-capsule-*")
	if err != nil {
		return nil, err
	}
	c := &capsule{dir: record.Dir(tmp)}
	if err := c.unpack(&z.Reader); err != nil {
		return nil, errors.Join(fmt.Errorf("open capsule %s: %w", path, err), c.close())
	}
	return c, nil
}

func (c *capsule) unpack(z *zip.Reader) error {
	var head capsuleHead
	f, err := z.Open(capsuleFile)
	if err != nil {
		return errors.New("it is no capsule of tokmark: there is no " + capsuleFile)
	}
	err = json.NewDecoder(f).Decode(&head)
	switch err := errors.Join(err, f.Close()); {
	case err != nil:
		return fmt.Errorf("%s: %w", capsuleFile, err)
	case head.Schema > capsuleSchema:
		return fmt.Errorf("it has schema version %d and this tokmark knows up to %d: use a newer tokmark", head.Schema, capsuleSchema)
	}
	c.notRepeatable = head.NotRepeatable
	// Only names that are known are unpacked, so that none leads out of the
	// directory.
	names := []string{record.ManifestFile, record.RecordsFile, record.SamplesFile, record.SummaryJSONFile}
	for option, base := range head.Files {
		if !slices.Contains(fileOptions, option) || base != fileName(base) || base == "" {
			return fmt.Errorf("%s: the file %q of %q is not allowed", capsuleFile, base, option)
		}
		if err := os.MkdirAll(c.dir.Path(capsuleInput+option), 0o755); err != nil {
			return err
		}
		names = append(names, capsuleInput+option+"/"+base)
	}
	for _, name := range names {
		err := unpackFile(z, name, c.dir.Path(name))
		optional := name == record.SamplesFile || name == record.SummaryJSONFile
		if err != nil && (!optional || !errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if c.m, err = c.dir.ReadManifest(); err != nil {
		return err
	}
	for option, base := range head.Files {
		before, _ := namedFile(option, configText(c.m, option))
		if c.m.Config[option], err = json.Marshal(before + c.dir.Path(capsuleInput+option+"/"+base)); err != nil {
			return err
		}
	}
	return nil
}

func unpackFile(z *zip.Reader, name, path string) error {
	in, err := z.Open(name)
	if err != nil {
		return err
	}
	out, err := os.Create(path)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	n, err := io.Copy(out, io.LimitReader(in, capsuleLimit))
	if err == nil && n == capsuleLimit {
		err = errors.New("it is too large")
	}
	return errors.Join(err, out.Close(), in.Close())
}

func (c *capsule) close() error { return os.RemoveAll(string(c.dir)) }

// notFromCapsule are options that belong to the other server or machine, or to
// this run alone.
var notFromCapsule = []string{
	"url", "header", "simulate", "artifact-dir", "ui", "dialect", "condition", "gpu-telemetry", "slo", "from", "selftest", "repeat", "insecure", "endpoint",
	"unix-socket", "proxy",
}

// apply sets every option that the capsule's run had and the command line does
// not give.
func (c *capsule) apply(flags *pflag.FlagSet) error {
	given := map[string]bool{}
	flags.Visit(func(f *pflag.Flag) { given[f.Name] = true })
	set := func(name string, raw json.RawMessage) error {
		f := flags.Lookup(name)
		if f == nil {
			return fmt.Errorf("the capsule has the option %s, which this tokmark does not: use that of the capsule (version %s)", name, c.m.Tool.Version)
		}
		if given[name] || slices.Contains(notFromCapsule, name) || slices.Contains(notInScenario, name) {
			return nil
		}
		if name == "request-count" && c.m.Load.Requests == 0 {
			return nil // a default that did not count
		}
		var list []json.RawMessage
		if many, ok := f.Value.(pflag.SliceValue); ok && json.Unmarshal(raw, &list) == nil {
			texts := make([]string, len(list))
			for i, v := range list {
				texts[i] = optionText(v)
			}
			if len(texts) == 0 || slices.Equal(texts, many.GetSlice()) {
				return nil
			}
			f.Changed = true
			return many.Replace(texts)
		}
		if text := optionText(raw); text != f.Value.String() {
			return flags.Set(name, text)
		}
		return nil
	}
	var errs []error
	for name, raw := range c.m.Config {
		if err := set(name, raw); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	if l := c.m.Load; l.Concurrency > 0 && (l.Rate > 0 || l.Arrival != "") && !given["concurrency"] {
		// A cap of the default's value was given all the same.
		errs = append(errs, flags.Set("concurrency", strconv.Itoa(l.Concurrency)))
	}
	salt, err := json.Marshal(c.m.Salt)
	errs = append(errs, err, set("salt", salt))
	if models := strings.Split(c.m.Target.Model, ", "); len(models) == 1 { // several are in the options
		name, err := json.Marshal(models)
		errs = append(errs, err, set("model", name))
	}
	var simulated bool
	if _ = json.Unmarshal(c.m.Config["simulate"], &simulated); simulated && !given["url"] {
		errs = append(errs, flags.Set("simulate", "true"))
	}
	return errors.Join(errs...)
}

// optionText is the text of a JSON value as it is given on a command line.
func optionText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	return string(raw)
}

// recall gives the prompts the lengths that they had: the other server may
// count differently.
func (c *capsule) recall(known *settled, m *record.Manifest) {
	if m.Calibration = c.m.Calibration; c.m.Calibration != nil {
		known.count.perWord = c.m.Calibration.TokensPerWord
	}
}

// check reports whether the workload of the run is that of the capsule.
func (c *capsule) check(m *record.Manifest) error {
	// The runs of a series have a salt each that begins with the one given.
	if m.WorkloadHash == c.m.WorkloadHash && (m.Salt == c.m.Salt || strings.HasPrefix(m.Salt, c.m.Salt+"-")) {
		return nil
	}
	return fmt.Errorf("the workload is not that of the capsule (hash %.12s, there %.12s): another option, or another version of tokmark (there %s), makes other requests",
		m.WorkloadHash, c.m.WorkloadHash, c.m.Tool.Version)
}

// compare writes what differs between the capsule's run and the new one, in
// conditions and figures, whatever that is.
func (c *capsule) compare(out io.Writer, dir record.Dir) error {
	a, err := compare.LoadSide(string(c.dir))
	if err != nil {
		return err
	}
	a.Name = c.m.ID + " (capsule)"
	b, err := compare.LoadSide(string(dir))
	if err != nil {
		return err
	}
	opt := compare.Options{}
	result, err := compare.Compare(a, b, opt)
	if err == nil && len(result.Blocked) > 0 {
		opt.Allow = result.Blocked
		result, err = compare.Compare(a, b, opt)
	}
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(out, "\nTHE RUN OF THE CAPSULE (A: %s) AND THIS ONE (B: %s)\n", c.m.ID, filepath.Base(string(dir))); err != nil {
		return err
	}
	return result.WriteText(out)
}
