"""DeepL's API, version 2, as its official clients use it: translation, languages, usage and glossaries."""
