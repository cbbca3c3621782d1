package compare

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tokmark/tokmark/bench/record"
)

// Store is a directory of accepted runs: copies of run directories, whose names
// begin with a number that counts up. Two processes must not add at one time.
type Store string

// Last returns the last n accepted runs, oldest first; a store that does not
// exist, or is empty, has none.
func (s Store) Last(n int) (Side, error) {
	side := Side{Name: string(s)}
	names, err := s.names()
	if err != nil {
		return side, err
	}
	for _, name := range names[max(0, len(names)-n):] {
		r, err := Load(filepath.Join(string(s), name))
		if err != nil {
			return side, fmt.Errorf("read baseline store: %w", err)
		}
		side.Runs = append(side.Runs, r)
	}
	return side, nil
}

// names are those of the runs, in the order of their numbers.
func (s Store) names() ([]string, error) {
	entries, err := os.ReadDir(string(s))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read baseline store: %w", err)
	}
	var out []string
	for _, e := range entries {
		if e.IsDir() && number(e.Name()) > 0 {
			out = append(out, e.Name())
		}
	}
	slices.SortFunc(out, func(a, b string) int { return number(a) - number(b) })
	return out, nil
}

func number(name string) int {
	digits, _, _ := strings.Cut(name, "-")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}

// Add copies a run into the store and returns the path of the copy. A run is
// there whole or not at all.
func (s Store) Add(r *Run) (string, error) {
	names, err := s.names()
	if err != nil {
		return "", err
	}
	next := 1
	if len(names) > 0 {
		next = number(names[len(names)-1]) + 1
	}
	if err := os.MkdirAll(string(s), 0o755); err != nil {
		return "", fmt.Errorf("add to baseline store: %w", err)
	}
	tmp, err := os.MkdirTemp(string(s), ".new-*")
	if err != nil {
		return "", fmt.Errorf("add to baseline store: %w", err)
	}
	to := filepath.Join(string(s), fmt.Sprintf("%06d-%s", next, fileName(r.Manifest.ID)))
	err = copyRun(cmp.Or(r.Files, r.Path), tmp)
	if err == nil {
		err = os.Chmod(tmp, 0o755)
	}
	if err == nil {
		err = os.Rename(tmp, to)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("add to baseline store: %w", err), os.RemoveAll(tmp))
	}
	return to, nil
}

// copyRun copies the files that a comparison reads.
func copyRun(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return copyFile(from, filepath.Join(to, record.SummaryJSONFile))
	}
	for _, pattern := range []string{record.ManifestFile, record.RecordsFile + "*", record.SamplesFile + "*", record.SummaryJSONFile} {
		files, err := filepath.Glob(filepath.Join(globQuote(from), pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			if err := copyFile(file, filepath.Join(to, filepath.Base(file))); err != nil {
				return err
			}
		}
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// fileName makes a short, safe name of any text.
func fileName(s string) string {
	const longest = 60
	safe := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, s)
	return safe[:min(len(safe), longest)]
}
