module tidelog/histories

go 1.20

require github.com/anishathalye/porcupine v1.0.3
