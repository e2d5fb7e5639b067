"""HTTP values that every layer uses: answers, problem documents, request checks."""
